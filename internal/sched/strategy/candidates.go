package strategy

import (
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// Candidates returns a subset of the nodes of a snapshot, with approximately the given maximum size, such that
// every strategy makes the same decision on it as on all nodes. It contains the nodes that any strategy would
// select or that cause it to have no opinion, and the node with the given name. The rest consists of the cheapest
// nodes according to the given strategy. The result is sorted by name. If the snapshot does not contain exactly one
// job, all nodes are returned.
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
		if i, _, _ := placement.Cheapest(&sorted, job, placing.cost); i >= 0 {
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

// keepCheapest marks the cheapest nodes until the given number of nodes is marked.
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
