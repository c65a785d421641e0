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
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// shortlists narrows cycles in which the scores of this plugin are decisive. From a sample with as many feasible
// nodes as kube-scheduler would consider, it selects the cheapest nodes by means of the node book. Only these are
// filtered and scored, at a fraction of the cost of an ordinary cycle.
//
// Invariants and their tests:
//
//   - The pod is placed on the node that an ordinary cycle would choose, which is the cheapest one of the sample that
//     passes all filters: TestShortlistsHaveTheBest, test/batch TestShortlist.
//   - The sample has as many nodes as kube-scheduler would consider: TestSampleSize, TestShortlistsAreOfTheSample.
//   - A cycle is not narrowed if another score plugin, a PreferNoSchedule taint or a nomination could matter:
//     TestCyclesThatAreNotNarrowed, test/batch TestShortlistsLeavePreemptionAlone.
//
// Nodes that have changed or been deleted since they were cached are read again or removed
// (TestNodesChangeMeanwhile, TestNodesGo). If no node of a shortlist passes the filters, the next cycle of the pod
// is an ordinary one (TestAfterAShortlistInVain). After many consecutive failures, narrowing is suspended for a
// while (TestManyShortlistsInVain).
type shortlists struct {
	most   int
	sample func(nodes int) int
	// whether the weight of the plugin outweighs all other score plugins for nodes with different costs
	decide func() bool

	trust time.Duration

	vain    int // number of failed shortlists since the last successful one
	resumes time.Time

	from    int   // index of the first node of the sample
	until   int64 // end of the sample's lifetime, in Unix nanoseconds
	nodes   int   // number of nodes in the cluster of the sample
	began   int   // value of book.began to which the seats of the members belong
	members []member
	seen    int // number of leading members that were examined for the last pod
	fewest  int // minimum of seen over all pods of this sample
	best    []choice
	of      *request // request of the shortlist in best

	changed []int // indices of nodes of the shortlist that have changed since
	costs   []float64
}

// member is a node of the sample with its cached state. A node is represented by the same NodeInfo during its
// lifetime, and only the content changes. Therefore the position of a node can be verified without reading it,
// which would dominate the cost of a shortlist with hundreds of nodes.
type member struct {
	node       fwk.NodeInfo
	generation int64
	at         int32 // index in kube-scheduler's list of nodes
	seat       int32
	kind       int32
	group      int32 // group in the cycle of the current pod
	full       bool
	tainted    bool
}

// choice is a node of the shortlist.
type choice struct {
	cost   float64
	member int32
	seat   int32
}

// trust is the lifetime of a sample, and of the cached state of nodes that are not on the shortlist. It is short
// compared to the interval of node updates, and long compared to a cycle.
const trust = 100 * time.Millisecond

// indifferent contains score plugins that do not affect shortlistable pods. Their rules concern features that such
// a pod does not use, or nodes that prevent narrowing of a cycle.
var indifferent = map[string]bool{
	EnergyName: true, "DynamicResources": true, "InterPodAffinity": true, "NodeAffinity": true,
	"PodTopologySpread": true, "TaintToleration": true, "VolumeBinding": true,
}

func newShortlists(most int, replaced []string, handle fwk.Handle) *shortlists {
	if most == 0 {
		return nil
	}
	percentage := int32(0) // the global default above the profiles is not accessible
	if profile, ok := handle.(interface{ PercentageOfNodesToScore() *int32 }); ok &&
		profile.PercentageOfNodesToScore() != nil {
		percentage = *profile.PercentageOfNodesToScore()
	}
	return &shortlists{
		most: most, trust: trust, sample: func(nodes int) int { return sampleSize(nodes, int(percentage)) },
		// The list of plugins is available only once kube-scheduler is complete.
		decide: sync.OnceValue(func() bool { return decides(replaced, handle) }),
	}
}

// decides reports whether the weight of the plugin outweighs all other score plugins. The cheapest node is one
// point ahead of the next one at the plugin's own weight, while other plugins may differ by up to MaxScore points
// at their weights. Replaced plugins do not score the pods concerned. Extenders may also score nodes.
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

// sampleSize returns the number of feasible nodes that kube-scheduler considers in a cluster with the given size.
func sampleSize(nodes, percentage int) int {
	percentage = cmp.Or(percentage, max(5, 50-nodes/125))
	return max(fewNodes, nodes*percentage/100)
}

// shortlistable reports whether the placement of the pod depends only on capacity, cost and the rules of the nodes,
// so that the cheapest nodes can be selected before filtering.
func shortlistable(pod *v1.Pod) bool {
	spec := &pod.Spec
	if pod.Status.NominatedNodeName != "" || spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 ||
		spec.Resources != nil || !batch.Plain(pod) {
		return false
	}
	// By default, pods of other owners are spread, which affects the scores.
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

// narrowToCheapest returns the nodes to which the cycle is narrowed, or nil if it is not narrowed.
func (e *Energy) narrowToCheapest(r *request, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.PreFilterResult {
	l, where, policy := e.shortlists, e.wheres[r.settings.Where], e.policy(r.settings.Weights)
	if l == nil || len(r.ahead) > 0 || !e.retries.allow(len(nodes)) || !l.decide() || r.settings.MaxPower != 0 ||
		r.settings.MinEfficiency != 0 || where.Symmetry(&policy) != strategy.Interchangeable ||
		!where.NodeLocal(&policy) || !shortlistable(pod) || !e.retries.untried(pod) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin(r)
	if e.scratch.snapshot.Now.Before(l.resumes) || !e.findBest(r, pod, nodes) {
		return nil
	}
	l.of = r
	names := sliceutil.Map(l.best, func(c choice) string { return e.book.seats[c.seat].name })
	r.shortlisted = true
	shortlisted.WithLabelValues(outcomeMade).Inc()
	return &fwk.PreFilterResult{NodeNames: sets.New(names...)}
}

// candidates returns all nodes that were available to the decision. These are the nodes of the shortlist that
// passed the filters, and all more expensive nodes of the sample. The latter have not been filtered, but replaying
// the decision yields the same node.
func (e *Energy) candidates(r *request, left []fwk.NodeInfo) []fwk.NodeInfo {
	l := e.shortlists
	if !r.shortlisted || l.of != r || len(l.changed) > 0 { // a changed node may now cost more than others
		return left
	}
	listed := sets.New(sliceutil.Map(l.best, func(c choice) int32 { return c.member })...)
	all := slices.Clone(left)
	for i := range l.members[:l.seen] {
		m := &l.members[i]
		// skip nodes that have changed since the decision
		if n := r.cluster[m.at]; m.group != none && !listed.Has(int32(i)) && n.GetGeneration() == m.generation {
			all = append(all, n)
		}
	}
	return all
}

// If several consecutive shortlists fail, an unknown rule rejects the cheapest nodes. Narrowing is then suspended
// for firstPause, which doubles with each further failure.
const (
	maxFailures  = 8
	firstPause   = time.Second
	maxDoublings = 6
)

// shortlistFailed records that no node of a shortlist passed the filters.
func (e *Energy) shortlistFailed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.shortlists
	l.until = 0 // the next pod uses a new sample with other nodes
	if l.vain++; l.vain >= maxFailures {
		l.resumes = e.clock().Add(firstPause << min(l.vain-maxFailures, maxDoublings))
	}
}

// shortlistServed records that a shortlist was successful.
func (e *Energy) shortlistServed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.shortlists.vain = 0
}

// findBest computes the shortlist from a sample. ok is false if that is not possible.
func (e *Energy) findBest(r *request, pod *v1.Pod, nodes []fwk.NodeInfo) (ok bool) {
	l, s := e.shortlists, &e.scratch
	l.of = nil
	now := s.snapshot.Now.UnixNano()
	// the clock may have been set back
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

// renew starts a new sample after the nodes that all pods of the last sample have examined.
func (l *shortlists) renew(nodes []fwk.NodeInfo, now int64, began int) {
	if len(l.members) > 0 {
		l.from += l.fewest // nodes that only large pods have examined may have capacity for small ones
	}
	l.from %= len(nodes)
	l.until, l.nodes, l.began, l.fewest = now+int64(l.trust), len(nodes), began, len(nodes)
	clear(l.members) // drop references to deleted nodes
	l.members, l.best = l.members[:0], l.best[:0]
}

// inPlace reports whether the nodes of the shortlist still have the same positions.
func (l *shortlists) inPlace(nodes []fwk.NodeInfo) bool {
	return !slices.ContainsFunc(l.best, func(c choice) bool {
		m := &l.members[c.member]
		return nodes[m.at] != m.node
	})
}

// refresh reads the nodes of the last shortlist again that have changed. The last pod was probably placed on one of
// them, which may be among the cheapest again. ok is false if a position has changed.
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

// readMember returns the node with the given index in kube-scheduler's list of nodes.
func (e *Energy) readMember(nodes []fwk.NodeInfo, at int32) member {
	i := e.book.find(nodes[at])
	seat := &e.book.seats[i]
	return member{
		node: nodes[at], generation: seat.generation, at: at, seat: i, kind: seat.kind, full: seat.full,
		tainted: seat.tainted,
	}
}

// drawSample selects as many members as kube-scheduler would consider that have capacity for the pod and admit it.
// It adds one node of each of their kinds to the snapshot, and extends the sample if necessary. ok is false if
// there are no such members, or if a node has a PreferNoSchedule taint, because other plugins take these into
// account.
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

// none is the group of nodes that are not feasible for the pod, usually due to missing capacity.
const none = -1

// rankShort ranks the nodes of a shortlist that passed the filters. Their costs are already known, except for nodes
// that have changed.
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

// groupOf returns the group of a kind, or none if its nodes have no capacity for the job.
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

// insertBest adds a node to the shortlist if it is cheap enough.
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

// ahead reports whether a is preferred to b.
func (e *Energy) ahead(a, b choice) bool {
	if a.cost != b.cost {
		return a.cost < b.cost
	}
	return e.book.before(a.seat, b.seat)
}
