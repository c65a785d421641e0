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

// nodeBook remembers nodes as the core sees them. kube-scheduler gives each state of each node a number that it never
// gives again, the generation: what was found out about a generation holds as long as the view does. From one cycle
// to the next few nodes change.
type nodeBook struct {
	view   *kube.View
	began  int              // how often it was begun anew
	byName map[string]int32 // seats, which are given in the order in which kube-scheduler lists its nodes

	seats  []seat
	nodes  []sched.Node // by seat, without live watts
	placed int          // how many seats, from the first, know their place

	kinds  map[kind]int32
	ofKind []sched.Node // one of each kind

	next [4]int32 // seats of those that are probably asked for next
	turn int
}

// seat is all of a node that scoring by kinds needs: a cycle reads little memory for each of its nodes, and in order.
type seat struct {
	generation int64
	kind       int32
	place      int32 // among the seats that know theirs, by name
	name       string
	full       bool // it runs as many pods as it may
	tainted    bool // not every pod may go there, or wants to
}

// kind is what sets nodes apart under a strategy that takes them as [strategy.Interchangeable].
type kind struct {
	site           *sched.Site
	profile        *energy.Profile
	capacity, free sched.Resources
	pue, speed     float64
	empty          bool
	benchmarked    string // the node's name, where it has benchmarks: maps cannot be compared
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

// slackStates is how many more nodes, and kinds of them, than twice the cluster's nodes are remembered. Kinds come
// with pods.
const slackStates = 1024

// open makes the book ready for a cycle under a view, in a cluster of these nodes. It is begun anew with another
// view, and when most of what it holds is bygone.
func (b *nodeBook) open(view *kube.View, cluster []fwk.NodeInfo) {
	most := 2*len(cluster) + slackStates
	if b.view != view || len(b.nodes) > most || len(b.ofKind) > most {
		*b = nodeBook{
			view: view, began: b.began + 1, byName: make(map[string]int32, len(cluster)), kinds: map[kind]int32{},
			seats: make([]seat, 0, len(cluster)), nodes: make([]sched.Node, 0, len(cluster)),
		}
		for _, n := range cluster {
			b.find(n)
		}
	}
	// Not for each that comes: clusters grow by many nodes at a time.
	if added := len(b.seats) - b.placed; added > b.placed/8 {
		b.place()
	}
}

// place tells all seats their place.
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

// before reports whether the node of one seat comes before that of another by name. Names lie scattered in memory, so
// they are looked at only where there are no places yet.
func (b *nodeBook) before(i, k int32) bool {
	if int(max(i, k)) < b.placed {
		return b.seats[i].place < b.seats[k].place
	}
	return b.seats[i].name < b.seats[k].name
}

// find returns the seat of a node, in its present state. Nodes mostly come in the order of their seats, by a few that
// search the cluster at the same time: then this is comparing a few numbers that lie side by side.
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

// update finds a node by name, and updates what is remembered of it.
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
	s.name = name // the string of the node's present object, which is the one that NormalizeScore is handed
	return at
}

// number returns that of a node's kind.
func (b *nodeBook) number(node *sched.Node) int32 {
	k := newKind(node)
	number, known := b.kinds[k]
	if !known {
		number = int32(len(b.ofKind))
		b.kinds[k], b.ofKind = number, append(b.ofKind, *node)
	}
	return number
}

// coreNode returns the node as the core sees it, with the pods that the scheduler has assumed onto it, but without
// live watts.
func coreNode(view *kube.View, n fwk.NodeInfo) sched.Node {
	capacity := resources(n.GetAllocatable())
	node, _ := view.Node(n.Node(), capacity, capacity.Sub(resources(n.GetRequested())), workloads(n.GetPods()))
	return node
}

// annotated adds what is written on a node of the watts that it draws.
func (e *Energy) annotated(node *sched.Node, n fwk.NodeInfo, now time.Time) {
	node.Live, node.HasLive = kube.LiveWatts(n.Node(), now, e.seen.Changed)
}

func resources(r fwk.Resource) sched.Resources {
	return sched.Resources{
		MilliCPU: r.GetMilliCPU(), Memory: r.GetMemory(), GPU: policy.ScalarGPUs(r.GetScalarResources()),
	}
}

// workloads counts the pods of a node, as none if all of them come with the node itself: those do not keep a node from
// being suspended or removed.
func workloads(pods []fwk.PodInfo) int {
	for _, p := range pods {
		if policy.KeepsAwake(p.GetPod()) {
			return len(pods)
		}
	}
	return 0
}
