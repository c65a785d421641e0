package sched

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// ModelState is the result of applying the exponential power model to a placement.
type ModelState uint8

const (
	// WithoutModel means that the node's profile has no exponential model, or that its CPU capacity is unknown.
	WithoutModel ModelState = iota
	// WithinModel means that the model covers the placement.
	WithinModel
	// BeyondModel means that the placement exceeds the CPU capacity of the node.
	BeyondModel
)

// Rise returns the increase in the power of n, in watts, when j runs on it, according to the exponential model of
// the node. For an empty node it includes the difference between idle and sleep power.
func (n *Node) Rise(j *Job) (energy.Watts, ModelState) {
	model, ok := exponential(n.Profile)
	before, after := 100*n.Utilisation(Resources{}), 100*n.Utilisation(j.Request)
	switch {
	case !ok || n.Capacity.MilliCPU <= 0:
		return 0, WithoutModel
	case after > 100:
		return 0, BeyondModel
	}
	rise := model.power(after) - model.power(max(0, before))
	if n.Jobs == 0 {
		rise += n.Profile.Power(0) - n.Profile.Sleep
	}
	return rise, WithinModel
}

// exponentialModel is the power model K0 + K1·e^(K2·x), or K0 + K1·x if K2 is 0.
type exponentialModel struct{ k0, k1, k2 float64 }

// exponential fits the model to the power of a profile at 0, 50 and 100 %. With r = (P100 − P50)/(P50 − P0),
// e^(50·K2) = r holds. It returns false if the profile draws no power at full load, or if the power does not rise
// over both halves, because no exponential then passes through the three points.
func exponential(p *energy.Profile) (exponentialModel, bool) {
	if p == nil {
		return exponentialModel{}, false
	}
	idle, half, full := float64(p.Power(0)), float64(p.Power(0.5)), float64(p.Power(1))
	lower, upper := half-idle, full-half
	switch {
	case !(full > 0) || math.IsInf(full, 0) || !(idle >= 0):
		return exponentialModel{}, false
	case lower == 0 && upper == 0:
		return exponentialModel{k0: idle}, true // constant power at any load
	case !(lower > 0 && upper > 0):
		return exponentialModel{}, false
	}
	const straight = 1e-6 // if r is this close to 1, the exponential is indistinguishable from a line
	r := upper / lower
	if math.Abs(r-1) < straight {
		return exponentialModel{k0: idle, k1: (full - idle) / 100}, true
	}
	k1 := lower / (r - 1)
	return exponentialModel{k0: idle - k1, k1: k1, k2: math.Log(r) / 50}, true
}

// power returns the power at x per cent of load.
func (m exponentialModel) power(x float64) energy.Watts {
	if m.k2 == 0 {
		return energy.Watts(m.k0 + m.k1*x)
	}
	return energy.Watts(m.k0 + m.k1*math.Exp(m.k2*x))
}
