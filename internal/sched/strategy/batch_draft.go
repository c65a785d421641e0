package strategy

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// draft is a placement of the open jobs that is not carried out yet.
type draft struct {
	node   []int // by position among the open jobs; -1: none
	placed int
	cost   float64 // of all that are placed, one after the other, each as the nodes are by then
}

// better reports whether d places more jobs, or as many at less cost.
func (d *draft) better(than *draft) bool {
	if d.placed != than.placed {
		return d.placed > than.placed
	}
	return d.cost < than.cost
}

// try places the open jobs in order, each where choose says for its position among them (-1: nowhere) as far as it
// fits there, and takes everything back. It reports each chosen node to chosen, where that is not nil.
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

// carryOut places the open jobs as a draft says.
func (b *batch) carryOut(d draft) {
	for k, i := range b.open {
		if d.node[k] >= 0 {
			b.place(i, d.node[k])
		}
	}
	b.close()
}
