package sched

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// ModelState says what an exponential model knows of a placement.
type ModelState uint8

const (
	// WithoutModel means that the node's profile has no exponential model, or that its CPU capacity is unknown.
	WithoutModel ModelState = iota
	// WithinModel means that the model says what the placement draws.
	WithinModel
	// BeyondModel means that the placement takes more than all of the node's CPU.
	BeyondModel
)

// Rise returns the watts that n draws more by its exponential model once j runs on it.
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

// exponentialModel is K0 + K1·e^(K2·x), or K0 + K1·x where K2 is 0.
type exponentialModel struct{ k0, k1, k2 float64 }

// exponential fits the model to a profile at 0, 50 and 100 %. With r = (P100 − P50)/(P50 − P0) it is e^(50·K2) = r. A
// profile that draws nothing at full load says nothing, and one whose power does not rise over both halves has no
// exponential through it.
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
		return exponentialModel{k0: idle}, true // it draws the same under any load
	case !(lower > 0 && upper > 0):
		return exponentialModel{}, false
	}
	const straight = 1e-6 // nearer to 1 than this, the exponential is a line to all digits that matter
	r := upper / lower
	if math.Abs(r-1) < straight {
		return exponentialModel{k0: idle, k1: (full - idle) / 100}, true
	}
	k1 := lower / (r - 1)
	return exponentialModel{k0: idle - k1, k1: k1, k2: math.Log(r) / 50}, true
}

// power returns the watts at x per cent.
func (m exponentialModel) power(x float64) energy.Watts {
	if m.k2 == 0 {
		return energy.Watts(m.k0 + m.k1*x)
	}
	return energy.Watts(m.k0 + m.k1*math.Exp(m.k2*x))
}
