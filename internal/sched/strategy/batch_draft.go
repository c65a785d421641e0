package strategy

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// draft is a tentative placement of the open jobs.
type draft struct {
	node   []int // by position among the open jobs; -1 if not placed
	placed int
	cost   float64 // sum over all placed jobs in order, given the state of the nodes at that point
}

// better reports whether d places more jobs, or the same number at a lower cost.
func (d *draft) better(than *draft) bool {
	if d.placed != than.placed {
		return d.placed > than.placed
	}
	return d.cost < than.cost
}

// try places the open jobs in order, each on the node returned by choose for its position (-1 for none) if it fits
// there, and then restores the nodes. It calls chosen with each selected node unless chosen is nil.
func (b *batch) try(choose func(k int) int, chosen func(node int)) draft {
	before := append([]sched.Node(nil), b.nodes...)
	defer copy(b.nodes, before)
	d := draft{node: make([]int, len(b.open))}
	costings := make([]placement.Costing, len(b.kinds))
	for k, i := range b.open {
		kind := &b.kinds[b.kindOf[i]]
		c := &costings[b.kindOf[i]]
		if c.Job == nil {
			*c = placement.NewCosting(&b.snapshot, kind)
		}
		d.node[k] = -1
		node := choose(k)
		if node < 0 {
			continue
		}
		cost := b.price(c, node)
		if math.IsNaN(cost) {
			continue
		}
		d.node[k] = node
		d.placed++
		d.cost += cost
		b.nodes[node] = b.nodes[node].Place(kind.Request)
		if chosen != nil {
			chosen(node)
		}
	}
	return d
}

// carryOut applies a draft to the open jobs.
func (b *batch) carryOut(d draft) {
	for k, i := range b.open {
		if d.node[k] >= 0 {
			b.place(i, d.node[k])
		}
	}
	b.close()
}
