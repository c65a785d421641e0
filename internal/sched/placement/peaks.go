package placement

import (
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Peaks implements the placement "peaks", based on the plugin of this name in scheduler-plugins: the smallest
// increase in power according to an exponential model of the node.
//
//	P(x) = K0 + K1·e^(K2·x),   x is the CPU utilisation in per cent
//	cost = K1·(e^(K2·p) − e^(K2·x)),   p = 100·(used + requested)/capacity
//
// The original reads K0, K1 and K2 of every node from its configuration. Here the curve is fitted to the node's
// power profile at idle, half and full load. For a linear profile it is a straight line.
//
// In the original, unknown values result in a cost of 0, which is the best score: for nodes without a model or
// without a reading, and for nodes that the job would overload. Here these nodes cost more than all others and are
// only selected if there is no alternative; nodes without a model are preferred to overloaded nodes. In the
// original, waking a node is free. Here it costs the difference between sleep and idle power, which is 0 for
// profiles of nodes that never sleep. If no candidate has a model, there is no opinion.
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

// peakScale is the maximum known cost among the candidates.
type peakScale struct {
	known    bool
	modelled bool // whether some candidate has a model
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
