package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// RoundRobin is the where "round-robin": the next node by name after the last one used. Ties go by name, so two cost
// levels are enough.
func RoundRobin(c *Costing, n *sched.Node) (float64, bool) {
	if n.Name > c.Snapshot.Last {
		return 0, true
	}
	return 1, true
}
