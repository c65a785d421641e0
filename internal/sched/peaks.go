package sched

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// peaks is the where "peaks", after the plugin of that name of scheduler-plugins: the least increase of power under an
// exponential model of the node.
//
//	P(x) = K0 + K1·e^(K2·x),   x the CPU utilisation in per cent
//	cost = K1·(e^(K2·p) − e^(K2·x)),   p = 100·(used + requested)/capacity
//
// The original reads K0, K1 and K2 of every node from its configuration. Here the curve goes through what the node's
// power profile says of idle, half and full load; a profile that is linear has a straight line for it.
//
// In the original whatever it does not know costs 0, which is the best score: a node without a model, one without a
// reading, one that the job would overload. Here such a node costs more than any that is known, and is only taken if
// there is no other: first one that is not known, then one that would be overloaded. Waking a node is free of charge
// in the original; here it costs the rise from sleep to idle, which is 0 where profiles say that nodes never sleep.
// Where no candidate has a model there is no opinion.
func peaks(c *costing, n *Node) (float64, bool) {
	if !c.peak.known {
		c.peak = scalePeaks(c.snapshot.Nodes, c.job)
	}
	if !c.peak.modelled {
		return 0, false
	}
	switch rise, state := n.rise(c.job); state {
	case withinModel:
		return float64(rise), true
	case beyondModel:
		return c.peak.dearest + 2, true
	default:
		return c.peak.dearest + 1, true
	}
}

// peakScale is the greatest cost among the candidates whose cost is known.
type peakScale struct {
	known    bool
	modelled bool // some candidate has a model
	dearest  float64
}

func scalePeaks(nodes []*Node, j *Job) peakScale {
	scale := peakScale{known: true}
	for _, n := range nodes {
		rise, state := n.rise(j)
		if state == withoutModel {
			continue
		}
		scale.modelled = true
		if state == withinModel {
			scale.dearest = max(scale.dearest, float64(rise))
		}
	}
	return scale
}

// modelState says what an exponential model knows of a placement.
type modelState uint8

const (
	withoutModel modelState = iota
	withinModel
	beyondModel // more than all of the CPU
)

// rise returns the watts that n draws more by its exponential model once j runs on it.
func (n *Node) rise(j *Job) (energy.Watts, modelState) {
	model, ok := exponential(n.Profile)
	before, after := 100*n.Utilisation(Resources{}), 100*n.Utilisation(j.Request)
	switch {
	case !ok || n.Capacity.MilliCPU <= 0:
		return 0, withoutModel
	case after > 100:
		return 0, beyondModel
	}
	rise := model.power(after) - model.power(max(0, before))
	if n.Jobs == 0 {
		rise += n.Profile.Power(0) - n.Profile.Sleep
	}
	return rise, withinModel
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
