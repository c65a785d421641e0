package sched

// random is the where "random": any node, all alike. Which one follows from the policy's seed and the names of job
// and node alone, so that a decision can be repeated, and does not depend on what else is offered.
func random(c *costing, n *Node) (float64, bool) {
	return tieBreak(c.snapshot.Policy.Seed, c.job.ID, n.Name), true
}
