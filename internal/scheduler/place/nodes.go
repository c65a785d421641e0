package place

import (
	"cmp"
	"slices"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// nodeBook caches the nodes in the representation of package sched. kube-scheduler assigns a unique generation to
// each state of each node, so a cache entry remains valid for its generation as long as the view remains the same.
// Few nodes change between two cycles.
type nodeBook struct {
	view   *kube.View
	began  int              // number of times the book was reset
	byName map[string]int32 // index into seats, which are in the order of kube-scheduler's node list

	seats  []seat
	nodes  []sched.Node // by seat, without live power
	placed int          // number of leading seats with a place

	kinds  map[kind]int32
	ofKind []sched.Node // one node of each kind

	runs map[string]nodeRuns // by name, only of some nodes
	ends []sched.End         // reused by endsOn

	next [4]int32 // seats that are likely to be looked up next
	turn int
}

// seat contains the node data that is needed to score by kind. It is small, so that a cycle reads little memory per
// node, and sequentially.
type seat struct {
	generation int64
	kind       int32
	place      int32 // index in the order of names, valid for the first nodeBook.placed seats
	name       string
	full       bool // runs the max number of pods
	tainted    bool // has taints or is unschedulable
	off        bool // not available even when it is awake
}

// kind contains the properties that distinguish nodes under a strategy that is [strategy.Interchangeable].
type kind struct {
	site           *sched.Site
	profile        *energy.Profile
	capacity, free sched.Resources
	pue, speed     float64
	empty          bool
	benchmarked    string // node name if the node has benchmarks, since maps are not comparable
}

func newKind(n *sched.Node) kind {
	k := kind{
		site: n.Site, profile: n.Profile, capacity: n.Capacity, free: n.Free, pue: n.PUE, speed: n.Speed,
		empty: n.Jobs == 0,
	}
	if n.Benchmarks != nil {
		k.benchmarked = n.Name
	}
	return k
}

// slackStates is added to twice the number of nodes to obtain the max number of cached nodes and kinds. The number
// of kinds grows with the pods on the nodes.
const slackStates = 1024

// open prepares the book for a cycle with the given view and nodes. The book is reset if the view has changed, or
// if most of its content is obsolete.
func (b *nodeBook) open(view *kube.View, cluster []fwk.NodeInfo) {
	most := 2*len(cluster) + slackStates
	if b.view != view || len(b.nodes) > most || len(b.ofKind) > most {
		runs := b.runs
		*b = nodeBook{
			view: view, began: b.began + 1, byName: make(map[string]int32, len(cluster)), kinds: map[kind]int32{},
			seats: make([]seat, 0, len(cluster)), nodes: make([]sched.Node, 0, len(cluster)),
		}
		if len(runs) <= most {
			b.runs = runs
		}
		for _, n := range cluster {
			b.find(n)
		}
	}
	// Do not sort for each new node, because clusters may grow by many nodes at a time.
	if added := len(b.seats) - b.placed; added > b.placed/8 {
		b.place()
	}
}

// place assigns a place to each seat.
func (b *nodeBook) place() {
	order := make([]int32, len(b.seats))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, k int32) int { return cmp.Compare(b.seats[i].name, b.seats[k].name) })
	for place, at := range order {
		b.seats[at].place = int32(place)
	}
	b.placed = len(b.seats)
}

// before reports whether the node of seat i precedes that of seat k by name. It compares places if possible,
// because names are scattered in memory.
func (b *nodeBook) before(i, k int32) bool {
	if int(max(i, k)) < b.placed {
		return b.seats[i].place < b.seats[k].place
	}
	return b.seats[i].name < b.seats[k].name
}

// find returns the seat of a node in its current state. Nodes are usually looked up in the order of their seats, by
// a few concurrent iterations over the cluster, so find only has to compare a few adjacent numbers.
func (b *nodeBook) find(n fwk.NodeInfo) int32 {
	generation := n.GetGeneration()
	for i, at := range b.next {
		if int(at) < len(b.seats) && b.seats[at].generation == generation {
			b.next[i]++
			return at
		}
	}
	at := b.update(n, generation)
	b.next[b.turn] = at + 1
	b.turn = (b.turn + 1) % len(b.next)
	return at
}

// update looks up a node by name and updates its seat.
func (b *nodeBook) update(n fwk.NodeInfo, generation int64) int32 {
	name := n.Node().Name
	at, known := b.byName[name]
	switch {
	case !known:
		at = int32(len(b.seats))
		b.byName[name] = at
		b.seats, b.nodes = append(b.seats, seat{}), append(b.nodes, sched.Node{})
	case b.seats[at].generation == generation:
		return at
	}
	node, s := &b.nodes[at], &b.seats[at]
	*node = coreNode(b.view, n)
	s.generation, s.kind = generation, b.number(node)
	s.full = len(n.GetPods()) >= n.GetAllocatable().GetAllowedPodNumber()
	s.tainted = len(n.Node().Spec.Taints) > 0 || n.Node().Spec.Unschedulable
	s.off = unavailable(n.Node())
	s.name = name // string of the current node object, which is also passed to NormalizeScore
	return at
}

// number returns the number of the node's kind.
func (b *nodeBook) number(node *sched.Node) int32 {
	k := newKind(node)
	number, known := b.kinds[k]
	if !known {
		number = int32(len(b.ofKind))
		b.kinds[k], b.ofKind = number, append(b.ofKind, *node)
	}
	return number
}

// coreNode converts the node, including the pods that the scheduler has assumed on it, but without live power.
func coreNode(view *kube.View, n fwk.NodeInfo) sched.Node {
	capacity := resources(n.GetAllocatable())
	node, _ := view.Node(n.Node(), capacity, capacity.Sub(resources(n.GetRequested())), workloads(n.GetPods()))
	return node
}

// annotated sets the live power of the node from its annotations.
func (e *Energy) annotated(node *sched.Node, n fwk.NodeInfo, now time.Time) {
	node.Live, node.HasLive = kube.LiveWatts(n.Node(), now, e.seen.Changed)
}

func resources(r fwk.Resource) sched.Resources {
	all := policy.ScalarGPUs(r.GetScalarResources())
	all.MilliCPU, all.Memory = r.GetMilliCPU(), r.GetMemory()
	return all
}

// workloads returns the number of pods of a node, or 0 if all of them belong to the node itself, because such pods
// do not prevent the node from being suspended or removed.
func workloads(pods []fwk.PodInfo) int {
	for _, p := range pods {
		if policy.KeepsAwake(p.GetPod()) {
			return len(pods)
		}
	}
	return 0
}
