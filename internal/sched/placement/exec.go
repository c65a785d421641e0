package placement

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Exec is the where "exec": the expected energy capacity of the Escheduler thesis. The node that would have the most
// watts to spare is chosen, of equal machines the one that draws least:
//
//	capacity = what the profile draws at full load, GPUs included
//	present  = live + provisional
//	ExEC     = capacity − present − expected
//	cost     = −ExEC
//
// Provisional are the watts of jobs that were placed on the node and are not in the live value yet; without them all
// jobs of a burst would go to the node that was least loaded before it. Expected are the job's own, as they were
// measured of others like it; else what the profile says that it adds.
//
// A node without fresh live watts is neither attractive nor repellent for that: what its profile says that it draws
// under its present load stands in for the reading. If no candidate has any, all that could be compared are profiles,
// and "energy" is the better way to do that: costs are then those of "energy", exactly. A candidate without a profile
// has no capacity: there is no opinion.
func Exec(c *Costing, n *sched.Node) (float64, bool) {
	if !c.metered.known {
		c.metered = meteredNodes{known: true, any: slices.ContainsFunc(c.Snapshot.Nodes, (*sched.Node).Metered)}
	}
	if !c.metered.any {
		return LowestEnergy(c, n)
	}
	if n.Profile == nil {
		return 0, false
	}
	present, ok := n.Drawn()
	if !ok {
		present = n.Power()
	}
	return float64(present + n.Added(c.Job) - n.MaxPower()), true
}

// meteredNodes says whether any candidate has live watts.
type meteredNodes struct{ known, any bool }
