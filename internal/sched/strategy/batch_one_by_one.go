package strategy

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// placeInOrder places the open jobs one by one on the node with the lowest cost, like strategies that do not match
// the whole queue.
func (b *batch) placeInOrder() { b.carryOut(b.inOrder()) }

// inOrder returns this placement as a draft. Equivalent jobs share the costs of their nodes, so that long queues
// are processed quickly. If the jobs differ too much for this, there is no opinion on the jobs that remain when the
// time is up.
func (b *batch) inOrder() draft {
	g := greedy{batch: b, of: make([]*ranking, len(b.kinds))}
	return b.try(
		func(k int) int {
			i := b.open[k]
			if b.hurried() {
				b.plan[i].Reason = sched.Reason{Kind: sched.NoOpinion}
				return -1
			}
			return g.cheapest(b.kindOf[i])
		},
		func(node int) { g.changed = append(g.changed, node) })
}

// hurried reports whether the time is up and placing the queue job by job would also take long.
func (b *batch) hurried() bool { return b.varied() && b.stopped() }

// varied reports whether there are too many kinds of jobs to store their costs for all nodes.
func (b *batch) varied() bool { return len(b.kinds)*len(b.nodes) > b.maxNodePairs }

// maxNodePairs limits the pairs of a kind of job and a node with stored costs, and the pairs of a kind and a group
// of nodes that are solved as one problem. Above this limit, costs are not shared when jobs are placed one by one,
// and prices are computed for one part of the queue after the other.
const maxNodePairs = 1 << 22

// greedy maintains the cheapest node for every kind of job while nodes fill up.
type greedy struct {
	batch   *batch
	of      []*ranking // by kind
	changed []int      // node of each placement, in order
}

// ranking is a tournament tree of nodes. The winner of a pair has the lower cost, or the lower position if costs
// are equal.
type ranking struct {
	costing placement.Costing
	costs   []float64
	winners []int32 // element k is the winner of elements 2k and 2k+1; leaves start at len(costs)
	seen    int     // number of changes that have been processed
}

// cheapest returns the cheapest node for a kind of job, or -1 if it fits on no node.
func (g *greedy) cheapest(kind int) int {
	if g.batch.varied() {
		return newRanking(g.batch, kind).cheapest()
	}
	r := g.of[kind]
	if r == nil {
		r = newRanking(g.batch, kind)
		r.seen = len(g.changed)
		g.of[kind] = r
	}
	for ; r.seen < len(g.changed); r.seen++ {
		r.update(g.batch, g.changed[r.seen])
	}
	return r.cheapest()
}

func (r *ranking) cheapest() int {
	if len(r.costs) == 0 {
		return -1
	}
	if best := int(r.winners[1]); !math.IsNaN(r.costs[best]) {
		return best
	}
	return -1
}

func newRanking(b *batch, kind int) *ranking {
	n := len(b.nodes)
	r := &ranking{
		costing: placement.NewCosting(&b.snapshot, &b.kinds[kind]), costs: b.costs(kind), winners: make([]int32, 2*n),
	}
	for k := range n {
		r.winners[n+k] = int32(k)
	}
	for k := n - 1; k >= 1; k-- {
		r.winners[k] = r.better(r.winners[2*k], r.winners[2*k+1])
	}
	return r
}

func (r *ranking) update(b *batch, node int) {
	r.costs[node] = b.price(&r.costing, node)
	for k := (len(r.costs) + node) / 2; k >= 1; k /= 2 {
		r.winners[k] = r.better(r.winners[2*k], r.winners[2*k+1])
	}
}

func (r *ranking) better(x, y int32) int32 {
	a, b := r.costs[x], r.costs[y]
	switch {
	case math.IsNaN(b) || a < b:
		return x
	case math.IsNaN(a) || b < a:
		return y
	}
	return min(x, y)
}
