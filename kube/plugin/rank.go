package plugin

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

// bestScore is reserved for the node of least cost. What others say about it is worth less than the step below, at the
// weight that our configuration gives this plugin: so the best node wins, and is not one of many that round to 100.
const bestScore = fwk.MaxScore

// rank turns costs into scores. The best node is the one of least cost, of equals the first by name. The others get at most bestScore − 1, in proportion to where their cost lies between the least and the largest.
// ok is false if costs cannot be compared.
func rank(nodes []*sched.Node, costs []float64, scores []int64) (ok bool) {
	best := 0
	least, largest := math.Inf(1), math.Inf(-1)
	for i, c := range costs {
		if math.IsNaN(c) || math.IsInf(c, 0) {
			return false
		}
		if c < least || c == least && nodes[i].Name < nodes[best].Name {
			best, least = i, c
		}
		largest = max(largest, c)
	}
	span := largest - least
	if math.IsInf(span, 0) {
		return false
	}
	for i, c := range costs {
		switch {
		case i == best:
			scores[i] = bestScore
		case span == 0:
			scores[i] = bestScore - 1
		default:
			scores[i] = int64(float64(bestScore-1) * ((largest - c) / span))
		}
	}
	return len(costs) > 0
}

// coreNode returns the node as the core sees it, with the pods that the scheduler has assumed onto it.
func coreNode(view *kube.View, n fwk.NodeInfo, now time.Time) sched.Node {
	capacity := resources(n.GetAllocatable())
	node, _ := view.Node(n.Node(), capacity, capacity.Sub(resources(n.GetRequested())), workloads(n.GetPods()))
	node.Live, node.HasLive = kube.LiveWatts(n.Node(), now)
	return node
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
