package place

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/scheduler/batch"
)

// shortlists narrow cycles in which our scores decide. Of as many nodes with room as kube-scheduler would look at,
// those of least cost are found in what the node book remembers, and only these are filtered and scored: a cycle then
// costs a fraction of an ordinary one.
//
// Invariants, and the tests that hold them:
//
//   - The pod comes to the node that an ordinary cycle would choose: of least cost among those of the sample that pass
//     all filters: TestShortlistsHaveTheBest, test/batch TestShortlist.
//   - The sample has as many nodes as kube-scheduler would look at: TestSampleSize, TestShortlistsAreOfTheSample.
//   - A cycle is not narrowed where another scorer, a taint that is only preferred, or a nomination could matter:
//     TestCyclesThatAreNotNarrowed, test/batch TestShortlistsLeavePreemptionAlone.
//
// What fails how: a node that changed or went since it was seen is looked at again or left out
// (TestNodesChangeMeanwhile, TestNodesGo). If no node of a shortlist passes the filters, the pod's next cycle is an
// ordinary one (TestAfterAShortlistInVain); after many such cycles no shortlists are made for a while
// (TestManyShortlistsInVain).
type shortlists struct {
	most   int
	sample func(nodes int) int
	decide func() bool // our weight leaves other scorers no say between nodes of different cost

	trust time.Duration

	vain    int // shortlists in vain since one was of use
	resumes time.Time

	from    int   // the node at which the sample begins
	until   int64 // nanoseconds of the Unix epoch
	nodes   int   // in the cluster of the sample
	began   int   // the book's, whose seats the members have
	members []member
	seen    int // how many of them, from the first, were looked at for the last pod, with room or without
	fewest  int // for any pod of this sample
	best    []choice
	of      *request // whose best they are

	changed []int // nodes of the best that have changed since
	costs   []float64
}

// member is a node of a sample, with what was last seen there. A node has one NodeInfo as long as it is there, of
// which only the contents change: so it is known which node is where without a look into it, which for hundreds of
// them is most of what a shortlist takes.
type member struct {
	node       fwk.NodeInfo
	generation int64
	at         int32 // in kube-scheduler's list of nodes
	seat       int32
	kind       int32
	group      int32 // in this pod's cycle
	full       bool
	tainted    bool
}

// choice is one of the best.
type choice struct {
	cost   float64
	member int32
	seat   int32
}

// trust is how long what was seen of a node that is not among the best is taken for true, and how long a sample is
// used: short beside the time in which news of nodes come, and long beside a cycle.
const trust = 100 * time.Millisecond

// indifferent are scorers that have nothing to say of pods that suit: their rules are about what such a pod does not
// have, or nodes that keep a cycle from being narrowed.
var indifferent = map[string]bool{
	EnergyName: true, "DynamicResources": true, "InterPodAffinity": true, "NodeAffinity": true,
	"PodTopologySpread": true, "TaintToleration": true, "VolumeBinding": true,
}

func newShortlists(most int, replaced []string, handle fwk.Handle) *shortlists {
	if most == 0 {
		return nil
	}
	percentage := int32(0) // what stands above the profiles is not told
	if profile, ok := handle.(interface{ PercentageOfNodesToScore() *int32 }); ok &&
		profile.PercentageOfNodesToScore() != nil {
		percentage = *profile.PercentageOfNodesToScore()
	}
	return &shortlists{
		most: most, trust: trust, sample: func(nodes int) int { return sampleSize(nodes, int(percentage)) },
		// kube-scheduler tells only once it is complete.
		decide: sync.OnceValue(func() bool { return decides(replaced, handle) }),
	}
}

// decides reports whether our weight leaves others no say: the node of least cost is a point ahead of the next, at
// our weight, and others differ by as many points as there are, at theirs. Replaced plugins do not score such pods.
// Extenders may score as well.
func decides(replaced []string, handle fwk.Handle) bool {
	var ours, others int64
	for _, p := range enabledAt(handle, "Score") {
		if p.name == EnergyName {
			ours = p.weight
		}
		if !indifferent[p.name] && !slices.Contains(replaced, p.name) {
			others += p.weight
		}
	}
	return ours > 0 && ours >= fwk.MaxScore*others && len(handle.Extenders()) == 0
}

// sampleSize is how many nodes that fit kube-scheduler looks at, of a cluster's nodes.
func sampleSize(nodes, percentage int) int {
	percentage = cmp.Or(percentage, max(5, 50-nodes/125))
	return max(fewNodes, nodes*percentage/100)
}

// shortlistable reports whether nothing but room, cost and the nodes' own rules decides where a pod goes, so that the
// nodes of least cost can be told beforehand.
func shortlistable(pod *v1.Pod) bool {
	spec := &pod.Spec
	if pod.Status.NominatedNodeName != "" || spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 ||
		spec.Resources != nil || !batch.Plain(pod) {
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

// narrowToCheapest returns the nodes that the cycle is narrowed to, nil if it is not.
func (e *Energy) narrowToCheapest(r *request, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.PreFilterResult {
	l, where, policy := e.shortlists, e.wheres[r.settings.Where], e.policy(r.settings.Weights)
	if l == nil || !e.retries.allow(len(nodes)) || !l.decide() || r.settings.MaxPower != 0 ||
		r.settings.MinEfficiency != 0 ||
		where.Symmetry(&policy) != strategy.Interchangeable || !where.NodeLocal(&policy) || !shortlistable(pod) ||
		!e.retries.untried(pod) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin(r)
	if e.scratch.snapshot.Now.Before(l.resumes) {
		return nil
	}
	if !e.findBest(r, pod, nodes) {
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

// candidates returns what there was to choose from: what filters have left of the shortlist, and all nodes of the
// sample that cost more. Filters have not seen these, but a record that is decided on again comes to the same node.
func (e *Energy) candidates(r *request, left []fwk.NodeInfo) []fwk.NodeInfo {
	l := e.shortlists
	if !r.shortlisted || l.of != r || len(l.changed) > 0 { // one that has changed may cost more than others by now
		return left
	}
	listed := make(map[int32]bool, len(l.best))
	for _, c := range l.best {
		listed[c.member] = true
	}
	all := slices.Clone(left)
	for i := range l.members[:l.seen] {
		m := &l.members[i]
		// it was not decided on what it is by now
		if n := r.cluster[m.at]; m.group != none && !listed[int32(i)] && n.GetGeneration() == m.generation {
			all = append(all, n)
		}
	}
	return all
}

// Where shortlists are in vain several times in a row, something that is not known here refuses the cheapest
// nodes. Then none are made for a while, and for twice as long after the next.
const (
	maxFailures  = 8
	firstPause   = time.Second
	maxDoublings = 6
)

// shortlistFailed notes that a shortlist was in vain.
func (e *Energy) shortlistFailed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.shortlists
	l.until = 0 // others have the next sample, in which other nodes are best
	if l.vain++; l.vain >= maxFailures {
		l.resumes = e.clock().Add(firstPause << min(l.vain-maxFailures, maxDoublings))
	}
}

// shortlistServed notes that one was not.
func (e *Energy) shortlistServed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shortlists.vain = 0
}

// findBest finds the nodes of least cost in a sample; ok is false if there is no telling.
func (e *Energy) findBest(r *request, pod *v1.Pod, nodes []fwk.NodeInfo) (ok bool) {
	l, s := e.shortlists, &e.scratch
	l.of = nil
	now := s.snapshot.Now.UnixNano()
	// clocks are set back
	if now >= l.until || l.until-now > int64(l.trust) || l.nodes != len(nodes) || l.began != e.book.began ||
		!e.refresh(nodes) {
		l.renew(nodes, now, e.book.began)
	}
	for {
		if !e.drawSample(r, pod, nodes) {
			return false
		}
		if s.costs, ok = e.wheres[r.settings.Where].Costs(&s.snapshot, &s.queue[0], s.costs); !ok ||
			slices.ContainsFunc(s.costs, func(c float64) bool { return math.IsNaN(c) || math.IsInf(c, 0) }) {
			return false
		}
		l.best = l.best[:0]
		for i := range l.members[:l.seen] {
			if m := &l.members[i]; m.group != none {
				e.insertBest(choice{s.costs[m.group], int32(i), m.seat})
			}
		}
		if l.inPlace(nodes) {
			return true
		}
		l.renew(nodes, now, e.book.began)
	}
}

// renew begins a sample where the last has ended for those pods that saw least of it.
func (l *shortlists) renew(nodes []fwk.NodeInfo, now int64, began int) {
	if len(l.members) > 0 {
		l.from += l.fewest // of what only large pods have seen, small ones may take some
	}
	l.from %= len(nodes)
	l.until, l.nodes, l.began, l.fewest = now+int64(l.trust), len(nodes), began, len(nodes)
	clear(l.members) // nodes that are no more
	l.members, l.best = l.members[:0], l.best[:0]
}

// inPlace reports whether the best are where they were seen.
func (l *shortlists) inPlace(nodes []fwk.NodeInfo) bool {
	return !slices.ContainsFunc(l.best, func(c choice) bool {
		m := &l.members[c.member]
		return nodes[m.at] != m.node
	})
}

// refresh looks again at those of the last best nodes that are no longer what they were: the pod took one of them,
// and it may well be among the best again. ok is false if one is no longer where it was.
func (e *Energy) refresh(nodes []fwk.NodeInfo) (ok bool) {
	l := e.shortlists
	if !l.inPlace(nodes) {
		return false
	}
	for _, c := range l.best {
		if m := &l.members[c.member]; m.node.GetGeneration() != m.generation {
			*m = e.readMember(nodes, m.at)
		}
	}
	return true
}

// readMember returns what is at a place in kube-scheduler's list of nodes.
func (e *Energy) readMember(nodes []fwk.NodeInfo, at int32) member {
	i := e.book.find(nodes[at])
	seat := &e.book.seats[i]
	return member{
		node: nodes[at], generation: seat.generation, at: at, seat: i, kind: seat.kind, full: seat.full,
		tainted: seat.tainted,
	}
}

// drawSample groups as many members as kube-scheduler would look at that have room for the pod and admit it, and
// fills the snapshot with one node of each of their kinds. The sample grows where it has too few. ok is false if
// there are none, or nodes with PreferNoSchedule taints, which other plugins weigh.
func (e *Energy) drawSample(r *request, pod *v1.Pod, nodes []fwk.NodeInfo) (ok bool) {
	l, s, admission := e.shortlists, &e.scratch, kube.AdmissionOf(pod)
	selective := len(pod.Spec.NodeSelector) > 0
	s.cycle++
	s.refs = s.refs[:0]
	left := l.sample(len(nodes))
	some := false
	for l.seen = 0; l.seen < len(nodes) && left > 0; l.seen++ {
		if l.seen == len(l.members) {
			l.members = append(l.members, e.readMember(nodes, int32((l.from+l.seen)%len(nodes))))
		}
		m := &l.members[l.seen]
		m.group = none
		if m.full {
			continue
		}
		group := e.groupOf(m.kind, &r.job)
		if group == none {
			continue
		}
		if m.tainted || selective {
			node := nodes[m.at].Node()
			if slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
				return t.Effect == v1.TaintEffectPreferNoSchedule
			}) {
				return false
			}
			if !admission.Admits(node) {
				continue
			}
		}
		m.group = group
		some = true
		left--
	}
	l.fewest = min(l.fewest, l.seen)
	s.snapshot.Nodes = s.refs
	return some
}

// none is the group of those that the pod cannot go to, mostly of kinds without room.
const none = -1

// rankShort ranks what filters have left of a shortlist. Their costs are known already, but for nodes that have
// changed meanwhile.
func (e *Energy) rankShort(r *request, nodes []fwk.NodeInfo) (ok bool) {
	l, s := e.shortlists, &e.scratch
	if l == nil || l.of != r {
		return false
	}
	s.costs, s.refs, l.changed = s.costs[:0], s.refs[:0], l.changed[:0]
	for i, n := range nodes {
		generation := n.GetGeneration()
		at := slices.IndexFunc(l.best, func(c choice) bool { return l.members[c.member].generation == generation })
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

// insertBest puts a node among the best if it is one of them.
func (e *Energy) insertBest(c choice) {
	l := e.shortlists
	if len(l.best) == l.most {
		if !e.ahead(c, l.best[l.most-1]) {
			return
		}
		l.best = l.best[:l.most-1]
	}
	i := sort.Search(len(l.best), func(i int) bool { return e.ahead(c, l.best[i]) })
	l.best = slices.Insert(l.best, i, c)
}

// ahead reports whether a node would be taken before another.
func (e *Energy) ahead(a, b choice) bool {
	if a.cost != b.cost {
		return a.cost < b.cost
	}
	return e.book.before(a.seat, b.seat)
}
