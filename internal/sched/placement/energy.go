package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// LowestEnergy is the where "energy": the marginal energy of the job at the site's meter, from the power curve of the
// node at its present load, with the wake-up of an empty node. It needs no signal.
func LowestEnergy(c *Costing, n *sched.Node) (float64, bool) {
	if n.Profile == nil {
		return 0, false
	}
	c.visit(n)
	return float64(c.rates.Energy(n.Marginal(c.Job))), true
}
