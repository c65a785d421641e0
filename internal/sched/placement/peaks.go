package placement

import (
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Peaks is the where "peaks", after the plugin of that name of scheduler-plugins: the least increase of power under an
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
func Peaks(c *Costing, n *sched.Node) (float64, bool) {
	if !c.peak.known {
		c.peak = scalePeaks(c.Snapshot.Nodes, c.Job)
	}
	if !c.peak.modelled {
		return 0, false
	}
	switch rise, state := n.Rise(c.Job); state {
	case sched.WithinModel:
		return float64(rise), true
	case sched.BeyondModel:
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

func scalePeaks(nodes []*sched.Node, j *sched.Job) peakScale {
	scale := peakScale{known: true}
	for _, n := range nodes {
		rise, state := n.Rise(j)
		if state == sched.WithoutModel {
			continue
		}
		scale.modelled = true
		if state == sched.WithinModel {
			scale.dearest = max(scale.dearest, float64(rise))
		}
	}
	return scale
}
