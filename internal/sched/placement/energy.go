package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// LowestEnergy implements the placement "energy": the additional energy of the job at the site's meter, from the
// power curve of the node at its current load, including the energy for waking an empty node, and the price of the
// time that expected jobs would wait longer, see [sched.Snapshot.Crowding]. No signal is required.
func LowestEnergy(c *Costing, n *sched.Node) (float64, bool) {
	if n.Profile == nil {
		return 0, false
	}
	c.visit(n)
	return float64(c.rates.Energy(n.Marginal(c.Job)) + c.Snapshot.Crowding(c.Job, n)), true
}
