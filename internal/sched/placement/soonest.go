package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Soonest is the where behind both, for one job alone: its run time, in seconds.
func Soonest(c *Costing, n *sched.Node) (float64, bool) { return n.Runtime(c.Job).Seconds(), true }
