package sched

import (
	"math"
	"slices"
)

// Candidates returns at most about the given number of a snapshot's nodes such that a job which is decided on them is
// decided as on all of them, under every strategy: the nodes that any of them would choose, or has no opinion because
// of, and the one that is named. The rest is filled up with the nodes of least cost under the strategy given. They
// are in the order of their names. The snapshot has one job.
func Candidates(s *Snapshot, keep string, strategy *Greedy, most int) []*Node {
	nodes := byName(s.Nodes)
	if len(nodes) <= most || len(s.Queue) != 1 {
		return nodes
	}
	sorted := *s
	sorted.Nodes = nodes
	job := &s.Queue[0]
	kept := make([]bool, len(nodes))
	for i, n := range nodes {
		kept[i] = n.Name == keep
	}
	for _, placing := range where {
		if i := decisive(&sorted, job, placing.cost); i >= 0 {
			kept[i] = true
		}
	}
	for _, i := range benchmarks(nodes, job.Class) {
		kept[i] = true
	}
	if costs, ok := strategy.Costs(&sorted, job, nil); ok {
		keepCheapest(kept, costs, most)
	}
	some := make([]*Node, 0, most)
	for i, n := range nodes {
		if kept[i] {
			some = append(some, n)
		}
	}
	return some
}

// keepCheapest keeps the nodes of least cost, until so many are kept.
func keepCheapest(kept []bool, costs []float64, most int) {
	left := most
	cheapest := make([]int, 0, len(kept))
	for i, k := range kept {
		if k {
			left--
		} else {
			cheapest = append(cheapest, i)
		}
	}
	for _, i := range cheapestOf(cheapest, costs, left) {
		kept[i] = true
	}
}

// decisive returns the position of the node that a where chooses, or because of which it has no opinion; -1 if there is
// none.
func decisive(s *Snapshot, j *Job, cost nodeCost) int {
	best, least := -1, math.Inf(1)
	c := newCosting(s, j)
	for i, n := range s.Nodes {
		here, known := cost(&c, n)
		if !known {
			return i
		}
		if best < 0 || here < least {
			best, least = i, here
		}
	}
	return best
}

// benchmarks returns the nodes that costs of others are relative to: the fastest and the most efficient ones, the
// largest, one that has a meter and one that has a power model.
func benchmarks(nodes []*Node, class string) (those []int) {
	for _, read := range [...]benchmarkReader{(*Node).measured, (*Node).rated} {
		fastest, thriftiest := -1, -1
		var most benchmarkScale
		for i, n := range nodes {
			rate, efficiency, ok := read(n, class)
			if ok && rate > most.rate {
				fastest, most.rate = i, rate
			}
			if ok && efficiency > most.efficiency {
				thriftiest, most.efficiency = i, efficiency
			}
		}
		those = append(those, fastest, thriftiest)
	}
	those = append(those,
		slices.IndexFunc(nodes, (*Node).metered),
		slices.IndexFunc(nodes, func(n *Node) bool {
			_, state := n.rise(&Job{})
			return state != withoutModel
		}))
	for k, most := range largest(nodes).vector() {
		those = append(those, slices.IndexFunc(nodes, func(n *Node) bool { return n.Capacity.vector()[k] == most }))
	}
	return slices.DeleteFunc(those, func(i int) bool { return i < 0 })
}
