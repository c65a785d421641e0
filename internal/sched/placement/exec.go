package placement

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Exec implements the placement "exec", the expected energy capacity of the Escheduler thesis. It selects the node
// with the most remaining power, and among identical machines the one with the lowest power:
//
//	capacity = power of the profile at full load, including GPUs
//	present  = live + provisional
//	ExEC     = capacity − present − expected
//	cost     = −ExEC
//
// Provisional is the power of jobs that were placed on the node and are not yet included in the live power. Without
// it, all jobs of a burst would be placed on the node with the lowest load before the burst. Expected is the
// measured power of similar jobs, or the increase according to the node's profile if it is not known.
//
// For a node without a fresh meter reading, the power according to its profile at the current load is used instead,
// so that the missing reading neither favors nor penalizes the node. If no candidate has a reading, only profiles
// could be compared. The costs are then equal to the costs of "energy", which compares profiles better. If a
// candidate has no profile, its capacity is unknown and there is no opinion.
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

// meteredNodes records whether any candidate has a meter reading.
type meteredNodes struct{ known, any bool }
