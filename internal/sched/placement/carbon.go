package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Carbon is the where "carbon" (CIaware): energy × intensity × PUE over the window in which the job would run, plus the
// policy's weighted terms for time to finish, price and utilisation, all in grams. It needs the signals that have a
// weight, and no other: with a weight on price alone, no carbon signal is needed.
//
// The original normalises each term over the candidate nodes, which makes a node's cost depend on its rivals and
// different windows incomparable; fixed exchange rates in grams keep the sum meaningful.
func Carbon(c *Costing, n *sched.Node) (float64, bool) {
	if n.Profile == nil {
		return 0, false
	}
	c.visit(n)
	if !c.fresh {
		c.Why = sched.NoFreshSignal
		return 0, false
	}
	power, wakeUp := n.Marginal(c.Job)
	if c.weights == sched.CarbonAlone { // all that most people ask for, at half the price of an estimate
		return float64(c.rates.Carbon(power, wakeUp)), true
	}
	return c.weights.Cost(c.rates.Estimate(power, wakeUp), c.Job.Submitted, n.Utilisation(c.Job.Request)), true
}
