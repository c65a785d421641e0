package plugin

import (
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/kube/batch"
	"github.com/kubenergy/kubenergy/sched"
)

// shortlists narrow cycles in which our scores decide. Of as many nodes with room as kube-scheduler would look at, those of least
// cost are found in what the node book remembers, and only these are filtered and scored. The pod comes to the same node, that of
// least cost that passes all filters, at a fraction of the price; if none of them passes, its next cycle is an ordinary one.
type shortlists struct {
	most   int
	sample func(nodes int) int
	decide func() bool // our weight leaves other scorers no say between nodes of different cost

	trust time.Duration

	vain    int // shortlists in vain since one was of use
	resumes time.Time

	from      int // the node at which the next sample begins
	positions []position
	began     int // the book's, whose seats the positions have
	members   []member
	best      []member
	of        *request // whose best they are

	changed []int // nodes of the best that have changed since
	costs   []float64
}

// position is a place in kube-scheduler's list of nodes, with what was last seen there. A node has one NodeInfo as long as it is
// there, of which only the contents change: so it is known which node is where without a look into it, which for hundreds
// of them is most of what a shortlist takes.
type position struct {
	node       fwk.NodeInfo
	until      int64 // nanoseconds of the Unix epoch
	generation int64
	seat       int32
	kind       int32
	crowded    bool
	tainted    bool
}

// trust is how long what was seen of a node that is not among the best is taken for true: short beside the time in which news
// of nodes come, and long beside a cycle.
const trust = 100 * time.Millisecond

// member is a node of a sample.
type member struct {
	cost       float64
	generation int64
	seat       int32
	at         int32 // its position
	group      int32
}

// indifferent are scorers that have nothing to say of pods that suit: their rules are about what such a pod does not have, or
// nodes that keep a cycle from being narrowed.
var indifferent = map[string]bool{
	EnergyName: true, "DynamicResources": true, "InterPodAffinity": true, "NodeAffinity": true, "PodTopologySpread": true, "TaintToleration": true, "VolumeBinding": true,
}

func newShortlists(most int, handle fwk.Handle) *shortlists {
	if handle == nil || most == 0 {
		return nil
	}
	percentage := int32(0) // what stands above the profiles is not told
	if profile, ok := handle.(interface{ PercentageOfNodesToScore() *int32 }); ok && profile.PercentageOfNodesToScore() != nil {
		percentage = *profile.PercentageOfNodesToScore()
	}
	return &shortlists{
		most: most, trust: trust, sample: func(nodes int) int { return sampleSize(nodes, int(percentage)) },
		// kube-scheduler tells only once it is complete.
		decide: sync.OnceValue(func() bool { return decides(handle) }),
	}
}

// decides reports whether our weight leaves others no say: the node of least cost is a point ahead of the next, at our weight, and
// others differ by as many points as there are, at theirs. Extenders may score as well.
func decides(handle fwk.Handle) bool {
	var ours, others int64
	for _, p := range enabledAt(handle, "Score") {
		if p.name == EnergyName {
			ours = p.weight
		}
		if !indifferent[p.name] {
			others += p.weight
		}
	}
	return ours > 0 && ours >= fwk.MaxScore*others && len(handle.Extenders()) == 0
}

// sampleSize is how many nodes that fit kube-scheduler looks at, of a cluster's nodes.
func sampleSize(nodes, percentage int) int {
	if percentage == 0 {
		percentage = max(5, 50-nodes/125)
	}
	return max(fewNodes, nodes*percentage/100)
}

// suits reports whether nothing but room, cost and the nodes' own rules decides where a pod goes, so that the nodes of least cost
// can be told beforehand.
func suits(pod *v1.Pod) bool {
	spec := &pod.Spec
	if pod.Status.NominatedNodeName != "" || spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 || spec.Resources != nil || !batch.Plain(pod) {
		return false
	}
	// Pods of other owners are spread by default, which is worth something.
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind != "Job" {
		return false
	}
	ofDevices := func(c v1.Container) bool {
		for name := range c.Resources.Requests {
			if name != v1.ResourceCPU && name != v1.ResourceMemory {
				return true
			}
		}
		return false
	}
	return !slices.ContainsFunc(spec.Containers, ofDevices) && !slices.ContainsFunc(spec.InitContainers, ofDevices)
}

// shortlist returns the nodes that the cycle is narrowed to, nil if it is not.
func (e *Energy) shortlist(r *request, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.PreFilterResult {
	l, where, policy := e.shortlists, e.wheres[r.settings.Where], e.policy(r.settings.Weights)
	if l == nil || !e.retries.allow(len(nodes)) || !l.decide() || r.settings.MaxPower != 0 || r.settings.MinEfficiency != 0 ||
		where.Symmetry(&policy) != sched.Interchangeable || !where.NodeLocal(&policy) || !suits(pod) || !e.retries.hopeful(pod) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin(r)
	if e.scratch.snapshot.Now.Before(l.resumes) {
		return nil
	}
	e.doubt(nodes)
	if !e.takeSample(r, pod, nodes) || !e.takeBest(where) {
		return nil
	}
	l.of = r
	names := make(sets.Set[string], len(l.best))
	for i := range l.best {
		names.Insert(e.book.seats[l.best[i].seat].name)
	}
	r.shortlisted = true
	shortlisted.WithLabelValues(outcomeMade).Inc()
	return &fwk.PreFilterResult{NodeNames: names}
}

// candidates returns what there was to choose from: what filters have left of the shortlist, and all nodes of the sample that cost
// more. Filters have not seen these, but a record that is decided on again comes to the same node.
func (e *Energy) candidates(r *request, left []fwk.NodeInfo) []fwk.NodeInfo {
	l := e.shortlists
	if !r.shortlisted || l.of != r {
		return left
	}
	listed := make(map[int32]bool, len(l.best))
	for i := range l.best {
		listed[l.best[i].at] = true
	}
	all := slices.Clone(left)
	for i := range l.members {
		m := &l.members[i]
		if n := r.cluster[m.at]; !listed[m.at] && n.GetGeneration() == m.generation { // it was not decided on what it is by now
			all = append(all, n)
		}
	}
	return all
}

// Where shortlists are in vain several times in a row, something refuses the cheapest nodes that nobody here knows of. Then none are
// made for a while, and for twice as long after the next.
const (
	mostInVain    = 8
	firstPause    = time.Second
	mostDoublings = 6
)

// disappointed notes that a shortlist was in vain.
func (e *Energy) disappointed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.shortlists
	if l.vain++; l.vain >= mostInVain {
		l.resumes = e.clock().Add(firstPause << min(l.vain-mostInVain, mostDoublings))
	}
}

// fulfilled notes that one was not.
func (e *Energy) fulfilled() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shortlists.vain = 0
}

// doubt has those of the last best nodes looked at again that are no longer what they were: the pod took one of them, and it may
// well be among the best again.
func (e *Energy) doubt(nodes []fwk.NodeInfo) {
	l := e.shortlists
	if len(l.positions) != len(nodes) || l.began != e.book.began {
		l.positions, l.began, l.best = make([]position, len(nodes)), e.book.began, l.best[:0]
		return
	}
	for i := range l.best {
		if m := &l.best[i]; nodes[m.at].GetGeneration() != m.generation {
			l.positions[m.at].until = 0
		}
	}
}

// takeBest finds the nodes of least cost in the sample; ok is false if there is no telling.
func (e *Energy) takeBest(where *sched.Greedy) (ok bool) {
	l, s := e.shortlists, &e.scratch
	if s.costs, ok = where.Costs(&s.snapshot, &s.queue[0], s.costs); !ok {
		return false
	}
	l.best = l.best[:0]
	for i := range l.members {
		m := &l.members[i]
		if m.cost = s.costs[m.group]; math.IsNaN(m.cost) || math.IsInf(m.cost, 0) {
			return false
		}
		e.enter(m)
	}
	return true
}

// look returns what is at a position.
func (e *Energy) look(nodes []fwk.NodeInfo, i int, now int64) *position {
	p := &e.shortlists.positions[i]
	trust := int64(e.shortlists.trust)
	if now >= p.until || p.until-now > trust || p.node != nodes[i] { // clocks are set back
		at := e.book.find(nodes[i])
		seat := &e.book.seats[at]
		*p = position{
			node: nodes[i], until: now + trust, generation: seat.generation,
			seat: at, kind: seat.kind, crowded: seat.crowded, tainted: seat.tainted,
		}
	}
	return p
}

// takeSample fills the sample with nodes that have room for the pod and admit it, and the snapshot with one node of each of their
// kinds. ok is false if there are none, or nodes that one would rather not use: how much rather is for other scorers to say.
func (e *Energy) takeSample(r *request, pod *v1.Pod, nodes []fwk.NodeInfo) (ok bool) {
	l, s, admission := e.shortlists, &e.scratch, batch.AdmissionOf(pod)
	selective := len(pod.Spec.NodeSelector) > 0
	s.cycle++
	s.refs, l.members = s.refs[:0], l.members[:0]
	want, now := l.sample(len(nodes)), s.snapshot.Now.UnixNano()
	for range nodes {
		if len(l.members) == want {
			break
		}
		l.from++
		if l.from >= len(nodes) {
			l.from = 0
		}
		p := e.look(nodes, l.from, now)
		group := e.groupOf(p.kind, &r.job)
		if group == none || p.crowded {
			continue
		}
		if p.tainted || selective {
			node := nodes[l.from].Node()
			if slices.ContainsFunc(node.Spec.Taints, discourages) {
				return false
			}
			if !admission.Admits(node) {
				continue
			}
		}
		l.members = append(l.members, member{generation: p.generation, seat: p.seat, at: int32(l.from), group: group})
	}
	s.snapshot.Nodes = s.refs
	return len(l.members) > 0
}

func discourages(t v1.Taint) bool { return t.Effect == v1.TaintEffectPreferNoSchedule }

// none is the group of kinds without room.
const none = -1

// rankShort ranks what filters have left of a shortlist. Their costs are known already, but for nodes that have changed meanwhile.
func (e *Energy) rankShort(r *request, nodes []fwk.NodeInfo) (ok bool) {
	l, s := e.shortlists, &e.scratch
	if l == nil || l.of != r {
		return false
	}
	s.costs, s.refs, l.changed = s.costs[:0], s.refs[:0], l.changed[:0]
	for i, n := range nodes {
		generation := n.GetGeneration()
		at := slices.IndexFunc(l.best, func(m member) bool { return m.generation == generation })
		if at >= 0 {
			e.ranking.single(i, e.book.seats[l.best[at].seat].name)
			s.costs = append(s.costs, l.best[at].cost)
			continue
		}
		seat := &e.book.seats[e.book.find(n)]
		e.ranking.single(i, seat.name)
		s.costs = append(s.costs, 0)
		s.refs, l.changed = append(s.refs, &e.book.ofKind[seat.kind]), append(l.changed, i)
	}
	if len(l.changed) > 0 {
		s.snapshot.Nodes = s.refs
		if l.costs, ok = e.wheres[r.settings.Where].Costs(&s.snapshot, &s.queue[0], l.costs); !ok {
			return false
		}
		for k, i := range l.changed {
			s.costs[i] = l.costs[k]
		}
	}
	return e.ranking.rank(s.costs)
}

// groupOf returns the group of a kind in a sample: none if its nodes have no room for the job.
func (e *Energy) groupOf(kind int32, j *sched.Job) int32 {
	s := &e.scratch
	for int(kind) >= len(s.groups) {
		s.groups = append(s.groups, grouped{})
	}
	g := &s.groups[kind]
	if g.cycle != s.cycle {
		*g = grouped{cycle: s.cycle, group: none}
		if n := &e.book.ofKind[kind]; j.Request.Within(n.Free) {
			g.group = int32(len(s.refs))
			s.refs = append(s.refs, n)
		}
	}
	return g.group
}

// enter puts a node among the best if it is one of them.
func (e *Energy) enter(m *member) {
	l := e.shortlists
	if len(l.best) == l.most {
		if !e.ahead(m, &l.best[l.most-1]) {
			return
		}
		l.best = l.best[:l.most-1]
	}
	i := len(l.best)
	for i > 0 && e.ahead(m, &l.best[i-1]) {
		i--
	}
	l.best = slices.Insert(l.best, i, *m)
}

// ahead reports whether a node would be taken before another.
func (e *Energy) ahead(a, b *member) bool {
	if a.cost != b.cost {
		return a.cost < b.cost
	}
	return e.book.before(a.seat, b.seat)
}
