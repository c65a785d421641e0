package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Soonest is the cost used by "min-min" and "max-min" for a single job: its run time on the node, in seconds.
func Soonest(c *Costing, n *sched.Node) (float64, bool) { return n.Runtime(c.Job).Seconds(), true }
