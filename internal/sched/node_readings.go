package sched

import (
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Drawn returns the current power of n, including jobs that are not yet part of the meter reading. It returns false
// if no valid meter reading exists.
func (n *Node) Drawn() (present energy.Watts, ok bool) {
	if !n.HasLive || !ValidPower(n.Live) {
		return 0, false
	}
	if ValidPower(n.Provisional) {
		return n.Live + n.Provisional, true
	}
	return n.Live, true
}

// Metered reports whether a valid meter reading of n exists.
func (n *Node) Metered() bool {
	_, ok := n.Drawn()
	return ok
}

// ValidPower reports whether w is finite and not negative.
func ValidPower(w energy.Watts) bool { return w >= 0 && !math.IsInf(float64(w), 1) }

// MaxPower returns the maximum power of n.
func (n *Node) MaxPower() energy.Watts {
	return n.Profile.Power(1) + n.Profile.GPUMax*energy.Watts(n.Capacity.Devices())
}

// Added returns the increase in the power of n, in watts, when j runs on it. It uses the expected power of j if
// known, otherwise the node's profile, or the nominal power if the node has no profile. For the first job on a node
// the result includes the power of waking the node, unless a meter reading indicates that the node is awake.
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

// Heat is the temperature of a node and whether it rejects new jobs because of it. The zero value means that the
// temperature is unknown.
type Heat struct {
	Celsius energy.Celsius `json:"celsius"`
	Limit   energy.Celsius `json:"limitCelsius,omitempty"` // 0 means no limit
	AsOf    time.Time      `json:"asOf"`
	// Hot is true if the temperature exceeded the limit and has not fallen clearly below it since.
	Hot bool `json:"hot,omitempty"`
}

const (
	cooling    = energy.Celsius(5) // an overheated node accepts jobs again at this much below its limit
	heatCounts = 3 * time.Minute
)

// Next returns the heat of a node after a new temperature reading.
func (h Heat) Next(celsius, limit energy.Celsius, at time.Time) Heat {
	hot := celsius > limit || h.fresh(at) && h.Hot && celsius > limit-cooling
	return Heat{Celsius: celsius, Limit: limit, AsOf: at, Hot: limit > 0 && hot}
}

// Refuses reports whether the node rejects new jobs, and the reason. A node with an outdated reading accepts all
// jobs, because missing data must not make a job unschedulable.
func (h Heat) Refuses(now time.Time) (why string, refuses bool) {
	if !h.Hot || !h.fresh(now) {
		return "", false
	}
	return fmt.Sprintf("node overheated: %.0f °C exceeds the limit of %.0f °C, new pods are accepted again at %.0f °C",
		float64(h.Celsius), float64(h.Limit), float64(h.Limit-cooling)), true
}

func (h Heat) fresh(now time.Time) bool { return now.Sub(h.AsOf) <= heatCounts }
