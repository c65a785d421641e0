package plugin

import (
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

// nodeBook remembers nodes as the core sees them. kube-scheduler gives each state of each node a number that it never gives
// again, the generation: what was found out about a generation holds as long as the view does. From one cycle to the next
// few nodes change, so most are looked up here, at the price of hashing one integer.
type nodeBook struct {
	view  *kube.View
	pages pages
	nodes []sched.Node // without live watts
	names []string     // theirs: scoring by kinds needs nothing else of a node
	kinds map[kind]int32
	first []int32 // by kind: the first node that was found to be of it
}

// kind is what sets nodes apart under a strategy that takes them as [sched.Interchangeable].
type kind struct {
	site           *sched.Site
	profile        *energy.Profile
	capacity, free sched.Resources
	pue, speed     float64
	empty          bool
	benchmarked    string // the node's name, where it has benchmarks: maps cannot be compared
}

func kindOf(n *sched.Node) kind {
	k := kind{
		site: n.Site, profile: n.Profile, capacity: n.Capacity, free: n.Free, pue: n.PUE, speed: n.Speed, empty: n.Jobs == 0,
	}
	if n.Benchmarks != nil {
		k.benchmarked = n.Name
	}
	return k
}

// slackPages is how many more states than twice the cluster's nodes are remembered: a new one comes with every pod.
const slackPages = 1024

// open makes the book ready for a cycle under a view, in a cluster of so many nodes. It is begun anew with another view, and
// when most of what it holds is bygone.
func (b *nodeBook) open(view *kube.View, clusterNodes int) {
	if b.view == view && len(b.nodes) <= 2*clusterNodes+slackPages {
		return
	}
	b.view = view
	b.pages.clear()
	if b.kinds == nil {
		b.kinds = map[kind]int32{}
	}
	clear(b.kinds)
	clear(b.nodes) // or they would keep what is gone alive
	clear(b.names)
	b.nodes, b.names, b.first = b.nodes[:0], b.names[:0], b.first[:0]
}

// find returns the page of a node in its present state.
func (b *nodeBook) find(n fwk.NodeInfo) page {
	generation := n.GetGeneration()
	if p := b.pages.of(generation); p != nil {
		return *p
	}
	node := coreNode(b.view, n)
	p := page{generation: generation, node: int32(len(b.nodes)), taken: true}
	k := kindOf(&node)
	number, known := b.kinds[k]
	if !known {
		number = int32(len(b.first))
		b.kinds[k] = number
		b.first = append(b.first, p.node)
	}
	p.kind = number
	b.nodes, b.names = append(b.nodes, node), append(b.names, node.Name)
	b.pages.add(p)
	return p
}

// coreNode returns the node as the core sees it, with the pods that the scheduler has assumed onto it, but without live watts.
func coreNode(view *kube.View, n fwk.NodeInfo) sched.Node {
	capacity := resources(n.GetAllocatable())
	node, _ := view.Node(n.Node(), capacity, capacity.Sub(resources(n.GetRequested())), workloads(n.GetPods()))
	return node
}

// annotated adds what is written on a node of the watts that it draws.
func annotated(node *sched.Node, n fwk.NodeInfo, now time.Time) {
	node.Live, node.HasLive = kube.LiveWatts(n.Node(), now)
}

func resources(r fwk.Resource) sched.Resources {
	return sched.Resources{MilliCPU: r.GetMilliCPU(), Memory: r.GetMemory(), GPU: kube.ScalarGPUs(r.GetScalarResources())}
}

// workloads counts the pods of a node, as none if all of them come with the node itself: those do not keep a node from
// being suspended or removed.
func workloads(pods []fwk.PodInfo) int {
	for _, p := range pods {
		if !comesWithNode(p.GetPod()) {
			return len(pods)
		}
	}
	return 0
}

func comesWithNode(pod *v1.Pod) bool {
	for i := range pod.OwnerReferences {
		o := &pod.OwnerReferences[i]
		if o.Controller != nil && *o.Controller && (o.Kind == "DaemonSet" || o.Kind == "Node") {
			return true
		}
	}
	return false
}
