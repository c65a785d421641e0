package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Random is the where "random": any node, all alike. Which one follows from the policy's seed and the names of job
// and node alone, so that a decision can be repeated, and does not depend on what else is offered.
func Random(c *Costing, n *sched.Node) (float64, bool) {
	return tieBreak(c.Snapshot.Policy.Seed, c.Job.ID, n.Name), true
}
