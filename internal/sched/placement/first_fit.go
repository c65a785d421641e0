package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// FirstFit is the where "fcfs": the first node by name that has room. With the queue in order of arrival it is first
// come, first served, with nothing to say on where.
func FirstFit(*Costing, *sched.Node) (float64, bool) { return 0, true }
