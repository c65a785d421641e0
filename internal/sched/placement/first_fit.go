package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// FirstFit implements the placement "fcfs": the first node by name with sufficient capacity. With the queue in
// order of arrival this is first come, first served, without a preference for nodes.
func FirstFit(*Costing, *sched.Node) (float64, bool) { return 0, true }
