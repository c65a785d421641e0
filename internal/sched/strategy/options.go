package strategy

import (
	"cmp"
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Options returns, for every job that a plan of g for s places, further nodes that have room for it once the plan is
// carried out: at most so many, those of least cost by then first. Where that leaves some over, nodes follow that
// only have room before anything is placed: they may be taken. Jobs that are alike share theirs, so the planned node
// may be among them, and no one may change them.
func (g *Greedy) Options(s *sched.Snapshot, plan sched.Plan, most int) [][]string {
	options := make([][]string, len(plan))
	before, after := newBatch(s, g.cost, mincost.NeverStop), newBatch(s, g.cost, mincost.NeverStop)
	position := make(map[string]int, len(after.nodes))
	for k := range after.nodes {
		position[after.nodes[k].Name] = k
	}
	for _, i := range s.InOrder(nil) { // of jobs that count as alike the first in line stands for all
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

// cheapest adds nodes of least cost that are not there yet, until there are so many.
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

// cheapestOf returns those of some nodes that cost least, at most so many; of equal ones the first.
func cheapestOf(nodes []int, costs []float64, most int) []int {
	slices.SortFunc(nodes, func(x, y int) int { return cmp.Or(cmp.Compare(costs[x], costs[y]), cmp.Compare(x, y)) })
	return nodes[:min(len(nodes), max(most, 0))]
}
