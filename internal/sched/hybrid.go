package sched

import "github.com/kubenergy/kubenergy/internal/energy"

// hybrid is the where "hybrid": the score of a thesis on clusters of unlike machines, in its soft form. It weighs how
// fast a node does this class of work against how much of it the node does per watt, both measured beforehand and
// relative to the best of the candidates:
//
//	delta      = loaded − idle, at least 1 W
//	projected  = live + delta, or loaded where no meter says what the node draws now
//	factor     = 1 / (1 + 0.5·(live − idle)/delta) where the node is busy already, else 1
//	efficiency = rate · factor / projected
//	score      = w·rate/best rate + (1 − w)·efficiency/best efficiency
//	cost       = 1 − score
//
// Live includes the watts of jobs that were placed on the node and that no meter has seen yet.
//
// There is no opinion where the job has no class or no candidate was measured on it. A node that was not measured costs
// 1: no more than a measured one can cost, so it is never preferred for being unknown. Rates are above 0, hence so are
// the scores of measured nodes, and a score of 0 says "unknown" and nothing else.
func hybrid(c *costing, n *Node) (float64, bool) { return c.benchmarked(n, (*Node).measured) }

// hybridIdle is the where "hybrid-idle": the hard form of the same score. It takes benchmarks as they are, and what a
// meter reads only says whether a node is busy: above its measured idle power by more than 5 W, or by more than half of
// what this class of work adds to it, jobs that no meter has seen yet included. Such a node costs 1 and next to nothing
// more: it scores 0 beside any node that is idle, is preferred to one that was never measured, and is taken if there is
// nothing else; among several, the soft form decides. Where no meter says anything, no node is busy.
func hybridIdle(c *costing, n *Node) (float64, bool) {
	cost, ok := c.benchmarked(n, (*Node).rated)
	if !ok {
		return 0, false
	}
	rate, efficiency, known := n.measured(c.job.Class)
	switch {
	case !known:
		return 1 + lastResort, true
	case n.busy(c.job.Class):
		return 1 + lastResort*max(0, 1-c.job.score(rate, efficiency, &c.best)), true
	}
	return cost, true
}

// What shows above idle that a node is busy: watts, as the thesis has it, and a share of what the work adds. A board
// that draws 2.9 W at full load never reaches the first.
const (
	busyAbove = energy.Watts(5)
	busyShare = 0.5
)

const lastResort = 1e-6 // too little to be seen beside any node that is idle

// benchmarkReader looks up how fast a node does a class of work, and how much of it per joule.
type benchmarkReader func(n *Node, class string) (rate, efficiency float64, ok bool)

// benchmarked returns the cost of n by benchmarks.
func (c *costing) benchmarked(n *Node, read benchmarkReader) (float64, bool) {
	if !c.best.known {
		c.best = scaleBenchmarks(c.snapshot.Nodes, c.job.Class, read)
	}
	if c.best.rate == 0 {
		c.why = NoBenchmark
		return 0, false
	}
	rate, efficiency, ok := read(n, c.job.Class)
	if !ok {
		return 1, true
	}
	return max(0, 1-c.job.score(rate, efficiency, &c.best)), true
}

// benchmarkScale is the best rate and the best efficiency among the candidates of one job; zero if none was measured.
type benchmarkScale struct {
	known            bool
	rate, efficiency float64
}

func scaleBenchmarks(nodes []*Node, class string, read benchmarkReader) benchmarkScale {
	best := benchmarkScale{known: true}
	for _, n := range nodes {
		if rate, efficiency, ok := read(n, class); ok {
			best.rate, best.efficiency = max(best.rate, rate), max(best.efficiency, efficiency)
		}
	}
	return best
}

// score weighs speed against efficiency: above 0, and 1 for who is best at both.
func (j *Job) score(rate, efficiency float64, best *benchmarkScale) float64 {
	w := j.performanceWeight()
	return w*rate/best.rate + (1-w)*efficiency/best.efficiency
}

const minDelta energy.Watts = 1 // what meters at a plug resolve

// measured returns how fast n does a class of work, and how much of it per joule in its present state.
func (n *Node) measured(class string) (rate, efficiency float64, ok bool) {
	b, ok := n.benchmark(class)
	if !ok {
		return 0, 0, false
	}
	delta := max(b.Power-b.Idle, minDelta)
	projected, factor := b.Power, 1.0
	if live, ok := n.drawn(); ok {
		projected = live + delta
		if live > max(1.2*b.Idle, b.Idle+2) {
			factor = 1 / (1 + 0.5*float64((live-b.Idle)/delta))
		}
	}
	return b.Rate, b.Rate * factor / float64(max(projected, minDelta)), true
}

// rated returns the same as it was measured, with nothing else on the node.
func (n *Node) rated(class string) (rate, efficiency float64, ok bool) {
	b, ok := n.benchmark(class)
	if !ok {
		return 0, 0, false
	}
	return b.Rate, b.Rate / float64(max(b.Power, minDelta)), true
}

// busy reports whether a meter shows that something runs on n.
func (n *Node) busy(class string) bool {
	live, ok := n.drawn()
	b, above := n.Benchmarks[class], busyAbove
	if b.Power > b.Idle {
		above = min(above, busyShare*(b.Power-b.Idle))
	}
	return ok && live > b.Idle+above
}

func (n *Node) benchmark(class string) (energy.Benchmark, bool) {
	if class == "" {
		return energy.Benchmark{}, false
	}
	b, ok := n.Benchmarks[class]
	return b, ok && b.Rate > 0
}

func (j *Job) performanceWeight() float64 {
	if !j.HasPerformanceWeight || !(j.PerformanceWeight >= 0 && j.PerformanceWeight <= 1) {
		return 0.5
	}
	return j.PerformanceWeight
}
