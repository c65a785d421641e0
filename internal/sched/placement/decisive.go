package placement

import (
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Cheapest returns the position of the node that the placement selects, the first one by name of equal ones, or -1
// if no node can be selected. ok is false if a cost is unknown; best is then the position of that node, and why is
// the reason.
func Cheapest(s *sched.Snapshot, j *sched.Job, cost NodeCost) (best int, why sched.ReasonKind, ok bool) {
	best, least := -1, math.Inf(1)
	costing := NewCosting(s, j)
	for i, n := range s.Nodes {
		c, known := cost(&costing, n)
		if !known {
			return i, costing.Why, false
		}
		if math.IsInf(c, 1) {
			continue
		}
		if best < 0 || c < least || c == least && n.Name < s.Nodes[best].Name {
			best, least = i, c
		}
	}
	return best, sched.NoOpinion, true
}

// Benchmarks returns the positions of the nodes that the costs of other nodes are relative to: the fastest, the
// most efficient and the largest nodes, one node with a meter and one node with a power model.
func Benchmarks(nodes []*sched.Node, class string) (selected []int) {
	for _, read := range [...]sched.BenchmarkReader{(*sched.Node).Measured, (*sched.Node).Rated} {
		fastest, thriftiest := -1, -1
		var most sched.BenchmarkScale
		for i, n := range nodes {
			rate, efficiency, ok := read(n, class)
			if ok && rate > most.Rate {
				fastest, most.Rate = i, rate
			}
			if ok && efficiency > most.Efficiency {
				thriftiest, most.Efficiency = i, efficiency
			}
		}
		selected = append(selected, fastest, thriftiest)
	}
	selected = append(selected,
		slices.IndexFunc(nodes, (*sched.Node).Metered),
		slices.IndexFunc(nodes, func(n *sched.Node) bool {
			_, state := n.Rise(&sched.Job{})
			return state != sched.WithoutModel
		}))
	for k, most := range largest(nodes).Vector() {
		selected = append(selected, slices.IndexFunc(nodes, func(n *sched.Node) bool {
			return n.Capacity.Vector()[k] == most
		}))
	}
	return slices.DeleteFunc(selected, func(i int) bool { return i < 0 })
}
