package placement

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Balanced is the where "balanced": the node on which the free shares of CPU and memory are closest to each other
// once the job runs there.
//
//	cost = |(free CPU − requested)/CPU − (free memory − requested)/memory|
//
// What is left of a node can then be used: neither resource strands the other. It needs neither profile nor signal. A
// node that has none of one of the two costs 1, as one that is used up in one and empty in the other.
func Balanced(c *Costing, n *sched.Node) (float64, bool) {
	if n.Capacity.MilliCPU <= 0 || n.Capacity.Memory <= 0 {
		return 1, true
	}
	left := n.Free.Sub(c.Job.Request)
	return math.Abs(float64(left.MilliCPU)/float64(n.Capacity.MilliCPU) -
		float64(left.Memory)/float64(n.Capacity.Memory)), true
}
