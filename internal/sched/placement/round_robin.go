package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// RoundRobin implements the placement "round-robin": the next node by name after the node used last. Ties are
// resolved by name, so two cost levels are sufficient.
func RoundRobin(c *Costing, n *sched.Node) (float64, bool) {
	if n.Name > c.Snapshot.Last {
		return 0, true
	}
	return 1, true
}
