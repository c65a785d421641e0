package mincost

// A place is where a node hangs in the spanning tree, and what its arc to the parent can still carry.
//
// Residuals stand here, by direction in the tree, rather than with the arc by direction of the arc: walking a cycle
// then touches one record a node and needs no case for which way an arc points.
type place struct {
	hook
	parent int32
	size   int32 // nodes that hang here, with this one
}

// A hook is what a node hangs by.
type hook struct {
	up, down int64 // units that can still be pushed to the parent, and from the parent to here
	arc      int32 // surplus or deficit: an artificial one
	entry    int32 // the arc's number as a candidate; none if it is not one
}

// turned returns the hook as seen from its other end.
func (h hook) turned() hook {
	h.up, h.down = h.down, h.up
	return h
}

// The artificial arcs between a node and the root, which take what no arc of the network carries. They are numbered
// alike: there is at most one at a node, and once out of the tree it is gone.
const (
	surplus = -1 // to the root
	deficit = -2 // from the root
)

const none = -1

// endless is what unlimited arcs can carry: no sum of supplies and capacities comes near.
const endless = 1 << 62

// A tree is a spanning tree over the nodes of a network and a root above them, which has the last number. It is
// strongly feasible: from each node a unit can be pushed to the root through it. Pivots that keep it so never cycle.
type tree struct {
	place []place
	kin   []kin
	prev  []int32 // sibling
}

// kin is what it takes to visit all that hangs at a node, apart from the rest so that much of it fits a processor's
// cache.
type kin struct{ child, next int32 } // the first child, and the next sibling

// newTree returns a tree in which all nodes hang at the root, by artificial arcs that carry nothing.
func newTree(nodes int) tree {
	t := tree{place: make([]place, nodes+1), kin: make([]kin, nodes+1), prev: make([]int32, nodes+1)}
	root := t.root()
	t.place[root] = place{parent: none, size: int32(nodes + 1)}
	t.kin[root] = kin{child: none, next: none}
	for node := range root {
		t.place[node] = place{hook: hook{arc: surplus, entry: none, up: endless}, size: 1}
		t.kin[node].child = none
		t.attach(node, root)
	}
	return t
}

func (t *tree) root() int32 { return int32(len(t.place) - 1) }

// attach hangs a node, with what hangs there, below a parent.
func (t *tree) attach(node, parent int32) {
	first := t.kin[parent].child
	if first >= 0 {
		t.prev[first] = node
	}
	t.kin[node].next, t.prev[node] = first, none
	t.kin[parent].child = node
	t.place[node].parent = parent
}

// detach takes a node off its parent.
func (t *tree) detach(node int32) {
	prev, next := t.prev[node], t.kin[node].next
	if prev >= 0 {
		t.kin[prev].next = next
	} else {
		t.kin[t.place[node].parent].child = next
	}
	if next >= 0 {
		t.prev[next] = prev
	}
}

// meet returns the lowest node that both hang below.
func (t *tree) meet(a, b int32) int32 {
	place := t.place
	for a != b {
		// The one with fewer nodes below it cannot be above the other.
		if place[a].size <= place[b].size {
			a = place[a].parent
		} else {
			b = place[b].parent
		}
	}
	return a
}

// rehang cuts the arc above a node and hangs what came loose by another hook: a node inside, at one outside. The sizes
// between the two places and their meeting point are brought up to date.
func (t *tree) rehang(cut, meet, inside, outside int32, by hook) {
	loose := t.place[cut].size
	for at := t.place[cut].parent; at != meet; at = t.place[at].parent {
		t.place[at].size -= loose
	}
	for at := outside; at != meet; at = t.place[at].parent {
		t.place[at].size += loose
	}
	// From the inner end up to the cut each node now hangs below the one that hung below it.
	node, parent, size := inside, outside, loose
	for {
		p := &t.place[node]
		above, old, below := p.parent, p.hook, p.size
		t.detach(node)
		t.attach(node, parent)
		p.hook, p.size = by, size
		if node == cut {
			return
		}
		node, parent = above, node
		by, size = old.turned(), loose-below
	}
}

// shift adds to the prices of a node and of all that hang there; or, where that is the greater part, takes it from the
// prices of all others, which comes to the same: only differences of prices matter.
func (t *tree) shift(node int32, by int64, price []int64, stack []int32) []int32 {
	start, skip := node, int32(none)
	if int(t.place[node].size) > len(t.place)/2 {
		start, skip, by = t.root(), node, -by
	}
	price[start] += by
	stack = append(stack[:0], start)
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for node := t.kin[top].child; node >= 0; {
			k := t.kin[node]
			if node != skip {
				price[node] += by
				if k.child >= 0 {
					stack = append(stack, node)
				}
			}
			node = k.next
		}
	}
	return stack
}

// sorted lists all nodes, parents before children.
func (t *tree) sorted(order []int32) []int32 {
	order = append(order[:0], t.root())
	for i := 0; i < len(order); i++ {
		for child := t.kin[order[i]].child; child >= 0; child = t.kin[child].next {
			order = append(order, child)
		}
	}
	return order
}
