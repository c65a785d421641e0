package sched

import (
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// exec is the where "exec": the expected energy capacity of the Escheduler thesis. The node that would have the most
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
func exec(c *costing, n *Node) (float64, bool) {
	if !c.metered.known {
		c.metered = meteredNodes{known: true, any: slices.ContainsFunc(c.snapshot.Nodes, (*Node).metered)}
	}
	if !c.metered.any {
		return lowestEnergy(c, n)
	}
	if n.Profile == nil {
		return 0, false
	}
	present, ok := n.drawn()
	if !ok {
		present = n.Power()
	}
	return float64(present + n.Added(c.job) - n.capacity()), true
}

// meteredNodes says whether any candidate has live watts.
type meteredNodes struct{ known, any bool }

// drawn returns what n draws now, with the jobs that no meter has seen yet. ok is false where no meter says it.
func (n *Node) drawn() (present energy.Watts, ok bool) {
	if !n.HasLive || !sensible(n.Live) {
		return 0, false
	}
	if sensible(n.Provisional) {
		return n.Live + n.Provisional, true
	}
	return n.Live, true
}

func (n *Node) metered() bool {
	_, ok := n.drawn()
	return ok
}

// sensible reports whether watts are a finite number that is not negative.
func sensible(w energy.Watts) bool { return w >= 0 && !math.IsInf(float64(w), 1) }

// capacity returns what n can draw at most.
func (n *Node) capacity() energy.Watts {
	return n.Profile.Power(1) + n.Profile.GPUMax*energy.Watts(n.Capacity.GPU)
}

// Added returns the watts that n draws more once j runs on it: those that are expected of j, else those of the
// profile, else nominal ones; and where it is the first job, those of a node that wakes up, unless a meter shows that
// it is awake.
func (n *Node) Added(j *Job) energy.Watts {
	expected := j.HasExpected && sensible(j.Expected)
	if n.Profile == nil {
		if expected {
			return j.Expected
		}
		return j.Nominal()
	}
	awake := n.running()
	added := j.Expected
	if !expected {
		added = n.with(j) - awake
	}
	if n.Jobs == 0 {
		before := n.Power()
		if n.HasLive && sensible(n.Live) {
			before = min(max(n.Live, before), awake)
		}
		added += awake - before
	}
	return added
}
