package strategy

import (
	"cmp"
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Options returns, for every job placed by plan, further nodes with sufficient capacity after the plan has been
// applied. It returns at most the given number of nodes per job, starting with the lowest cost. Remaining entries
// are filled with nodes that only have sufficient capacity before the plan is applied, and may therefore be
// occupied. Equivalent jobs share a slice, which may contain the planned node and must not be modified.
func (g *Greedy) Options(s *sched.Snapshot, plan sched.Plan, most int) [][]string {
	options := make([][]string, len(plan))
	before, after := newBatch(s, g.cost, mincost.NeverStop), newBatch(s, g.cost, mincost.NeverStop)
	position := sliceutil.Places(after.nodes, func(n *sched.Node) string { return n.Name })
	for _, i := range s.InOrder(nil) { // the first of equivalent jobs represents all of them
		if k, ok := position[plan[i].Node]; ok {
			after.nodes[k] = after.nodes[k].Place(s.Queue[i].Request)
			before.open = append(before.open, i)
		}
	}
	before.group()
	after.kinds = before.kinds
	ofKind := make([][]string, len(before.kinds))
	for _, i := range before.open {
		kind := before.kindOf[i]
		if ofKind[kind] == nil {
			ofKind[kind] = after.cheapest(kind, most, []string{})
			ofKind[kind] = before.cheapest(kind, most, ofKind[kind])
		}
		options[i] = ofKind[kind]
	}
	return options
}

// cheapest appends the cheapest nodes that are not yet in names, up to the given total number.
func (b *batch) cheapest(kind, most int, names []string) []string {
	costs := b.costs(kind)
	order := make([]int, 0, len(costs))
	for k, c := range costs {
		if !math.IsNaN(c) && !slices.Contains(names, b.nodes[k].Name) {
			order = append(order, k)
		}
	}
	for _, k := range cheapestOf(order, costs, most-len(names)) {
		names = append(names, b.nodes[k].Name)
	}
	return names
}

// cheapestOf returns the cheapest of the given nodes, up to the given number. Among nodes with equal costs, those
// with lower positions come first.
func cheapestOf(nodes []int, costs []float64, most int) []int {
	slices.SortFunc(nodes, func(x, y int) int { return cmp.Or(cmp.Compare(costs[x], costs[y]), cmp.Compare(x, y)) })
	return nodes[:min(len(nodes), max(most, 0))]
}
