package strategy

import (
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// Candidates returns at most about the given number of a snapshot's nodes such that a job which is decided on them is
// decided as on all of them, under every strategy: the nodes that any of them would choose, or has no opinion because
// of, and the one that is named. The rest is filled up with the nodes of least cost under the strategy given. They
// are in the order of their names. The snapshot has one job.
func Candidates(s *sched.Snapshot, keep string, strategy *Greedy, most int) []*sched.Node {
	nodes := sched.NodesByName(s.Nodes)
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
	for _, placing := range placements {
		if i := placement.Decisive(&sorted, job, placing.cost); i >= 0 {
			kept[i] = true
		}
	}
	for _, i := range placement.Benchmarks(nodes, job.Class) {
		kept[i] = true
	}
	if costs, ok := strategy.Costs(&sorted, job, nil); ok {
		keepCheapest(kept, costs, most)
	}
	some := make([]*sched.Node, 0, most)
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
