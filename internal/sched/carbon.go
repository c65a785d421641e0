package sched

// carbon is the where "carbon" (CIaware): energy × intensity × PUE over the window in which the job would run, plus the
// policy's weighted terms for time to finish, price and utilisation, all in grams. It needs the signals that have a
// weight, and no other: with a weight on price alone, no carbon signal is needed.
//
// The original normalises each term over the candidate nodes, which makes a node's cost depend on its rivals and
// different windows incomparable; fixed exchange rates in grams keep the sum meaningful.
func carbon(c *costing, n *Node) (float64, bool) {
	if n.Profile == nil {
		return 0, false
	}
	c.visit(n)
	if !c.fresh {
		c.why = NoFreshSignal
		return 0, false
	}
	power, wakeUp := n.marginal(c.job)
	if c.weights == carbonAlone { // all that most people ask for, at half the price of an estimate
		return float64(c.rates.carbon(power, wakeUp)), true
	}
	return c.weights.cost(c.rates.of(power, wakeUp), c.job.Submitted, n.Utilisation(c.job.Request)), true
}
