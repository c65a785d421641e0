package sched

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Drawn returns what n draws now, with the jobs that no meter has seen yet. ok is false where no meter says it.
func (n *Node) Drawn() (present energy.Watts, ok bool) {
	if !n.HasLive || !ValidPower(n.Live) {
		return 0, false
	}
	if ValidPower(n.Provisional) {
		return n.Live + n.Provisional, true
	}
	return n.Live, true
}

// Metered reports whether a meter says what n draws now.
func (n *Node) Metered() bool {
	_, ok := n.Drawn()
	return ok
}

// ValidPower reports whether watts are a finite number that is not negative.
func ValidPower(w energy.Watts) bool { return w >= 0 && !math.IsInf(float64(w), 1) }

// MaxPower returns what n can draw at most.
func (n *Node) MaxPower() energy.Watts {
	return n.Profile.Power(1) + n.Profile.GPUMax*energy.Watts(n.Capacity.GPU)
}

// Added returns the watts that n draws more once j runs on it: those that are expected of j, else those of the
// profile, else nominal ones; and where it is the first job, those of a node that wakes up, unless a meter shows that
// it is awake.
func (n *Node) Added(j *Job) energy.Watts {
	expected := j.HasExpected && ValidPower(j.Expected)
	if n.Profile == nil {
		if expected {
			return j.Expected
		}
		return j.Nominal()
	}
	awake := n.Running()
	added := j.Expected
	if !expected {
		added = n.with(j) - awake
	}
	if n.Jobs == 0 {
		before := n.Power()
		if n.HasLive && ValidPower(n.Live) {
			before = min(max(n.Live, before), awake)
		}
		added += awake - before
	}
	return added
}
