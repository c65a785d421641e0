package sched

import "github.com/kubenergy/kubenergy/energy"

// hybrid is the where "hybrid": the score of a thesis on clusters of unlike machines. It weighs how fast a node does
// this class of work against how much of it the node does per watt, both measured beforehand and relative to the best of
// the candidates:
//
//	delta      = loaded − idle, at least 1 W
//	projected  = live + delta, or loaded where no meter says what the node draws now
//	factor     = 1 / (1 + 0.5·(live − idle)/delta) where the node is busy already, else 1
//	efficiency = rate · factor / projected
//	score      = w·rate/best rate + (1 − w)·efficiency/best efficiency
//	cost       = 1 − score
//
// There is no opinion where the job has no class or no candidate was measured on it. A node that was not measured costs
// 1: no more than a measured one can cost, so it is never preferred for being unknown. Rates are above 0, hence so are
// the scores of measured nodes, and a score of 0 says "unknown" and nothing else.
func hybrid(c *costing, n *Node) (float64, bool) {
	if !c.best.known {
		c.best = scaleBenchmarks(c.snapshot.Nodes, c.job.Class)
	}
	if c.best.rate == 0 {
		c.why = NoBenchmark
		return 0, false
	}
	rate, efficiency, ok := n.measured(c.job.Class)
	if !ok {
		return 1, true
	}
	w := c.job.performanceWeight()
	return max(0, 1-w*rate/c.best.rate-(1-w)*efficiency/c.best.efficiency), true
}

// benchmarkScale is the best rate and the best efficiency among the candidates of one job; zero if none was measured.
type benchmarkScale struct {
	known            bool
	rate, efficiency float64
}

func scaleBenchmarks(nodes []*Node, class string) benchmarkScale {
	best := benchmarkScale{known: true}
	for _, n := range nodes {
		if rate, efficiency, ok := n.measured(class); ok {
			best.rate, best.efficiency = max(best.rate, rate), max(best.efficiency, efficiency)
		}
	}
	return best
}

const minDelta energy.Watts = 1 // what meters at a plug resolve

// measured returns how fast n does a class of work, and how much of it per joule in its present state.
func (n *Node) measured(class string) (rate, efficiency float64, ok bool) {
	if class == "" {
		return 0, 0, false
	}
	b, ok := n.Benchmarks[class]
	if !ok || !(b.Rate > 0) {
		return 0, 0, false
	}
	delta := max(b.Power-b.Idle, minDelta)
	projected, factor := b.Power, 1.0
	if n.HasLive && n.Live >= 0 {
		projected = n.Live + delta
		if n.Live > max(1.2*b.Idle, b.Idle+2) {
			factor = 1 / (1 + 0.5*float64((n.Live-b.Idle)/delta))
		}
	}
	return b.Rate, b.Rate * factor / float64(max(projected, minDelta)), true
}

func (j *Job) performanceWeight() float64 {
	if !j.HasPerformanceWeight || !(j.PerformanceWeight >= 0 && j.PerformanceWeight <= 1) {
		return 0.5
	}
	return j.PerformanceWeight
}
