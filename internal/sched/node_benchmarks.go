package sched

import "github.com/kubenergy/kubenergy/internal/energy"

// What shows above idle that a node is busy: watts, as the thesis has it, and a share of what the work adds. A board
// that draws 2.9 W at full load never reaches the first.
const (
	busyAbove = energy.Watts(5)
	busyShare = 0.5
)

// BenchmarkReader looks up how fast a node does a class of work, and how much of it per joule.
type BenchmarkReader func(n *Node, class string) (rate, efficiency float64, ok bool)

// BenchmarkScale is the best rate and the best efficiency among the candidates of one job; zero if none was measured.
type BenchmarkScale struct {
	Known            bool
	Rate, Efficiency float64
}

// ScaleBenchmarks returns the best rate and the best efficiency that read finds for a class of work among some nodes.
func ScaleBenchmarks(nodes []*Node, class string, read BenchmarkReader) BenchmarkScale {
	best := BenchmarkScale{Known: true}
	for _, n := range nodes {
		if rate, efficiency, ok := read(n, class); ok {
			best.Rate, best.Efficiency = max(best.Rate, rate), max(best.Efficiency, efficiency)
		}
	}
	return best
}

// Score weighs speed against efficiency: above 0, and 1 for who is best at both.
func (j *Job) Score(rate, efficiency float64, best *BenchmarkScale) float64 {
	w := j.performanceWeight()
	return w*rate/best.Rate + (1-w)*efficiency/best.Efficiency
}

const minDelta energy.Watts = 1 // what meters at a plug resolve

// Measured returns how fast n does a class of work, and how much of it per joule in its present state.
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

// Rated returns the same as it was measured, with nothing else on the node.
func (n *Node) Rated(class string) (rate, efficiency float64, ok bool) {
	b, ok := n.benchmark(class)
	if !ok {
		return 0, 0, false
	}
	return b.Rate, b.Rate / float64(max(b.Power, minDelta)), true
}

// Busy reports whether a meter shows that something runs on n.
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
