package sched

import "github.com/kubenergy/kubenergy/internal/energy"

// A node is considered busy if its power exceeds idle by a number of watts, as in the thesis, or by a fraction of
// the additional power of the work. The second criterion is needed for small boards: a board with a maximum power
// of 2.9 W never reaches the first.
const (
	busyAbove = energy.Watts(5)
	busyShare = 0.5
)

// BenchmarkReader returns the speed of a node for a class of work, and the work done per joule.
type BenchmarkReader func(n *Node, class string) (rate, efficiency float64, ok bool)

// BenchmarkScale is the best rate and the best efficiency among the candidate nodes of a job. Both are zero if no
// candidate was measured.
type BenchmarkScale struct {
	Known            bool
	Rate, Efficiency float64
}

// ScaleBenchmarks returns the best rate and the best efficiency that read returns for a class of work among the
// given nodes.
func ScaleBenchmarks(nodes []*Node, class string, read BenchmarkReader) BenchmarkScale {
	best := BenchmarkScale{Known: true}
	for _, n := range nodes {
		if rate, efficiency, ok := read(n, class); ok {
			best.Rate, best.Efficiency = max(best.Rate, rate), max(best.Efficiency, efficiency)
		}
	}
	return best
}

// Score returns the weighted sum of speed and efficiency, each relative to the best candidate. It is above 0, and 1
// for a node that is best in both.
func (j *Job) Score(rate, efficiency float64, best *BenchmarkScale) float64 {
	w := j.performanceWeight()
	return w*rate/best.Rate + (1-w)*efficiency/best.Efficiency
}

const minDelta energy.Watts = 1 // resolution of plug meters

// Measured returns the measured speed of n for a class of work, and the work per joule in the current state of the
// node.
func (n *Node) Measured(class string) (rate, efficiency float64, ok bool) {
	b, ok := n.benchmark(class)
	if !ok {
		return 0, 0, false
	}
	delta := max(b.Power-b.Idle, minDelta)
	projected, factor := b.Power, 1.0
	if live, ok := n.Drawn(); ok {
		projected = live + delta
		if live > max(1.2*b.Idle, b.Idle+2) {
			factor = 1 / (1 + 0.5*float64((live-b.Idle)/delta))
		}
	}
	return b.Rate, b.Rate * factor / float64(max(projected, minDelta)), true
}

// Rated returns the measured speed of n for a class of work, and the work per joule on an otherwise empty node.
func (n *Node) Rated(class string) (rate, efficiency float64, ok bool) {
	b, ok := n.benchmark(class)
	if !ok {
		return 0, 0, false
	}
	return b.Rate, b.Rate / float64(max(b.Power, minDelta)), true
}

// Busy reports whether, according to a meter, work is running on n.
func (n *Node) Busy(class string) bool {
	live, ok := n.Drawn()
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
