package mincost

// A place is where a node hangs in the spanning tree, and what its arc to the parent can still carry.
//
// Residuals stand here, by direction in the tree, rather than with the arc by direction of the arc: walking a cycle then
// touches one record a node and needs no case for which way an arc points.
type place struct {
	hook
	parent int32
	size   int32 // nodes that hang here, with this one
	child  int32 // the first one
	next   int32 // sibling
	prev   int32 // sibling
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

// The artificial arcs between a node and the root, which take what no arc of the network carries. They are numbered alike:
// there is at most one at a node, and once out of the tree it is gone.
const (
	surplus = -1 // to the root
	deficit = -2 // from the root
)

const none = -1

// endless is what unlimited arcs can carry: no sum of supplies and capacities comes near.
const endless = 1 << 62

// A tree is a spanning tree over the nodes of a network and a root above them, number len−1. It is strongly feasible: from
// each node a unit can be pushed to the root through it. Pivots that keep it so never cycle.
type tree []place

func (t tree) root() int32 { return int32(len(t) - 1) }

// clear makes all nodes single.
func (t tree) clear() {
	for i := range t {
		t[i] = place{hook: hook{arc: surplus, entry: none}, parent: none, size: 1, child: none, next: none, prev: none}
	}
}

// attach hangs a node, with what hangs there, below a parent.
func (t tree) attach(node, parent int32) {
	p := &t[node]
	first := t[parent].child
	p.parent, p.next, p.prev = parent, first, none
	if first >= 0 {
		t[first].prev = node
	}
	t[parent].child = node
}

// detach takes a node off its parent.
func (t tree) detach(node int32) {
	p := &t[node]
	if p.prev >= 0 {
		t[p.prev].next = p.next
	} else {
		t[p.parent].child = p.next
	}
	if p.next >= 0 {
		t[p.next].prev = p.prev
	}
}

// meet returns the lowest node that both hang below.
func (t tree) meet(a, b int32) int32 {
	for a != b {
		// Whoever has fewer nodes below cannot be above the other.
		if t[a].size <= t[b].size {
			a = t[a].parent
		} else {
			b = t[b].parent
		}
	}
	return a
}

// rehang cuts the arc above a node and hangs what came loose at another arc: from a node in the loose part to one outside,
// with those residuals. The sizes between the two places and their meeting point are brought up to date.
func (t tree) rehang(cut, meet, inside, outside int32, by hook) {
	loose := t[cut].size
	for at := t[cut].parent; at != meet; at = t[at].parent {
		t[at].size -= loose
	}
	for at := outside; at != meet; at = t[at].parent {
		t[at].size += loose
	}
	// From the inner end up to the cut each node now hangs below the one that hung below it.
	node, parent, size := inside, outside, loose
	for {
		p := &t[node]
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
func (t tree) shift(node int32, by int64, price []int64, stack []int32) []int32 {
	start, skip := node, int32(none)
	if int(t[node].size) > len(t)/2 {
		start, skip, by = t.root(), node, -by
	}
	stack = append(stack[:0], start)
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		price[top] += by
		for child := t[top].child; child >= 0; child = t[child].next {
			if child != skip {
				stack = append(stack, child)
			}
		}
	}
	return stack
}
