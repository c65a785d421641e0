package strategy

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// placeInOrder places what is open job by job, each on the node of least cost, as strategies do that do not look at a
// whole queue.
func (b *batch) placeInOrder() { b.carryOut(b.inOrder()) }

// inOrder is the same as a draft. Jobs that are alike share what their nodes cost, so that a long queue takes little
// time. Where they have too little in common for that, there is no opinion on those that time does not suffice for.
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

// hurried reports whether time is up and even serving the queue job by job would take long.
func (b *batch) hurried() bool { return b.varied() && b.stopped() }

// varied reports whether there are too many kinds of jobs to remember what each of them costs on each node.
func (b *batch) varied() bool { return len(b.kinds)*len(b.nodes) > b.maxNodePairs }

// maxNodePairs is how many pairs of a kind of job and a node are remembered at most, and of a kind and a group of nodes
// priced at once. Beyond that nothing is shared where jobs are served one by one, and prices are found for one part
// of the queue after the other.
const maxNodePairs = 1 << 22

// greedy keeps the node of least cost for every kind of job, while nodes fill up.
type greedy struct {
	batch   *batch
	of      []*ranking // by kind
	changed []int      // nodes, one for each placement
}

// ranking is a tournament of nodes: the winner of a pair costs less, or comes first by name.
type ranking struct {
	costing placement.Costing
	costs   []float64
	winners []int32 // of the pair 2k and 2k + 1 at k; the nodes themselves are at len(costs) and above
	seen    int     // how many changes it knows
}

// cheapest returns the node of least cost of a kind of job, -1 where it fits nowhere.
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
