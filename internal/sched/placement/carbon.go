package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Carbon implements the placement "carbon" (CIaware). The cost is energy × intensity × PUE over the window in which
// the job would run, plus the policy's weighted terms for time to finish, price and utilisation, all in grams. Only
// the signals with a weight are required: with a weight on price only, no carbon signal is needed.
//
// The original normalizes each term over the candidate nodes. The cost of a node then depends on the other
// candidates, and costs of different windows cannot be compared. Fixed exchange rates in grams avoid this.
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
	if c.weights == sched.CarbonAlone { // common case, at half the cost of a full estimate
		return float64(c.rates.Carbon(power, wakeUp)), true
	}
	return c.weights.Cost(c.rates.Estimate(power, wakeUp), c.Job.Submitted, n.Utilisation(c.Job.Request)), true
}
