package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Hybrid is the where "hybrid": the score of a thesis on clusters of unlike machines, in its soft form. It weighs how
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
func Hybrid(c *Costing, n *sched.Node) (float64, bool) {
	return c.benchmarked(n, (*sched.Node).Measured)
}

// HybridIdle is the where "hybrid-idle": the hard form of the same score. It takes benchmarks as they are, and what a
// meter reads only says whether a node is busy: above its measured idle power by more than 5 W, or by more than half of
// what this class of work adds to it, jobs that no meter has seen yet included. Such a node costs 1 and next to nothing
// more: it scores 0 beside any node that is idle, is preferred to one that was never measured, and is taken if there is
// nothing else; among several, the soft form decides. Where no meter says anything, no node is busy.
func HybridIdle(c *Costing, n *sched.Node) (float64, bool) {
	cost, ok := c.benchmarked(n, (*sched.Node).Rated)
	if !ok {
		return 0, false
	}
	rate, efficiency, known := n.Measured(c.Job.Class)
	switch {
	case !known:
		return 1 + lastResort, true
	case n.Busy(c.Job.Class):
		return 1 + lastResort*max(0, 1-c.Job.Score(rate, efficiency, &c.best)), true
	}
	return cost, true
}

const lastResort = 1e-6 // too little to be seen beside any node that is idle

// benchmarked returns the cost of n by benchmarks.
func (c *Costing) benchmarked(n *sched.Node, read sched.BenchmarkReader) (float64, bool) {
	if !c.best.Known {
		c.best = sched.ScaleBenchmarks(c.Snapshot.Nodes, c.Job.Class, read)
	}
	if c.best.Rate == 0 {
		c.Why = sched.NoBenchmark
		return 0, false
	}
	rate, efficiency, ok := read(n, c.Job.Class)
	if !ok {
		return 1, true
	}
	return max(0, 1-c.Job.Score(rate, efficiency, &c.best)), true
}
