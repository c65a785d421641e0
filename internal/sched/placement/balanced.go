package placement

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Balanced implements the placement "balanced". It selects the node on which the free fractions of CPU and memory
// are closest to each other after the job has been placed:
//
//	cost = |(free CPU − requested)/CPU − (free memory − requested)/memory|
//
// The remaining capacity of the node then stays usable, because neither resource is exhausted before the other. No
// profile or signal is required. A node without CPU or without memory costs 1, like a node on which one resource is
// exhausted and the other is unused.
func Balanced(c *Costing, n *sched.Node) (float64, bool) {
	if n.Capacity.MilliCPU <= 0 || n.Capacity.Memory <= 0 {
		return 1, true
	}
	left := n.Free.Sub(c.Job.Request)
	return math.Abs(float64(left.MilliCPU)/float64(n.Capacity.MilliCPU) -
		float64(left.Memory)/float64(n.Capacity.Memory)), true
}
