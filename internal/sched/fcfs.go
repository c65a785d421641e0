package sched

// firstFit is the where "fcfs": the first node by name that has room. With the queue in order of arrival it is first
// come, first served, with nothing to say on where.
func firstFit(*costing, *Node) (float64, bool) { return 0, true }
