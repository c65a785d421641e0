package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// MostAllocated is the where "most-allocated": stock kube-scheduler 1.36 with the scoring strategy MostAllocated in
// its plugin NodeResourcesFit, which fills nodes up, beside NodeResourcesBalancedAllocation at its default weight.
// Arithmetic and ties are those of "least-allocated".
func MostAllocated(c *Costing, n *sched.Node) (float64, bool) {
	used := n.Capacity.Sub(n.Free)
	then := used.Add(stockRequest(c.Job.Request))
	return stockCost(c, n, used, mostRequestedScore(then.MilliCPU, n.Capacity.MilliCPU)+
		mostRequestedScore(then.Memory, n.Capacity.Memory)), true
}

// mostRequestedScore takes more than everything as everything: what is assumed of containers without a request may
// exceed a small node.
func mostRequestedScore(requested, capacity int64) int64 {
	if capacity == 0 {
		return 0
	}
	return min(requested, capacity) * maxNodeScore / capacity
}
