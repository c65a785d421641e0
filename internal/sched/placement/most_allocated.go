package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// MostAllocated implements the placement "most-allocated": kube-scheduler 1.36 with the scoring strategy
// MostAllocated in the plugin NodeResourcesFit, which fills up nodes, in addition to
// NodeResourcesBalancedAllocation with its default weight. Arithmetic and tie-breaking are the same as for
// "least-allocated".
func MostAllocated(c *Costing, n *sched.Node) (float64, bool) {
	used := n.Capacity.Sub(n.Free)
	then := used.Add(stockRequest(c.Job.Request))
	return stockCost(c, n, used, mostRequestedScore(then.MilliCPU, n.Capacity.MilliCPU)+
		mostRequestedScore(then.Memory, n.Capacity.Memory)), true
}

// mostRequestedScore limits the requested amount to the capacity, because the default request of containers without
// requests may exceed the capacity of a small node.
func mostRequestedScore(requested, capacity int64) int64 {
	if capacity == 0 {
		return 0
	}
	return min(requested, capacity) * maxNodeScore / capacity
}
