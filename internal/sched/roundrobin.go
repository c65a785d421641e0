package sched

// roundRobin is the where "round-robin": the next node by name after the last one used. Ties go by name, so two cost
// levels are enough.
func roundRobin(c *costing, n *Node) (float64, bool) {
	if n.Name > c.snapshot.Last {
		return 0, true
	}
	return 1, true
}
