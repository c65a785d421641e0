package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Hybrid implements the placement "hybrid", the soft form of the score from a thesis on heterogeneous clusters. It
// combines the speed of a node for this class of work and the work done per watt, both measured beforehand and
// relative to the best candidate:
//
//	delta      = loaded − idle, at least 1 W
//	projected  = live + delta, or loaded without a meter reading
//	factor     = 1 / (1 + 0.5·(live − idle)/delta) if the node is already busy, otherwise 1
//	efficiency = rate · factor / projected
//	score      = w·rate/best rate + (1 − w)·efficiency/best efficiency
//	cost       = 1 − score
//
// Live includes the power of jobs that were placed on the node and are not yet part of the meter reading.
//
// There is no opinion if the job has no class, or if no candidate was measured for it. A node that was not measured
// costs 1, the maximum for measured nodes, so it is never preferred. Rates are positive and so are the scores of
// measured nodes. Therefore a score of 0 always means that the node was not measured.
func Hybrid(c *Costing, n *sched.Node) (float64, bool) {
	return c.benchmarked(n, (*sched.Node).Measured)
}

// HybridIdle implements the placement "hybrid-idle", the hard form of the same score. Benchmarks are used
// unchanged, and the meter reading only determines whether a node is busy: its power exceeds the measured idle
// power by more than 5 W, or by more than half of the power that this class of work adds, including jobs that are
// not yet part of the reading. A busy node costs slightly more than 1. Any idle node is preferred to it, and it is
// preferred to a node that was never measured. Among several busy nodes the soft form decides. Without meter
// readings, no node is considered busy.
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

const lastResort = 1e-6 // too small to affect the order of idle nodes

// benchmarked returns the cost of n according to its benchmarks.
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
