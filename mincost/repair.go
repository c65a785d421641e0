package mincost

// repair makes the spanning tree a strongly feasible basis of the network as it is now, whatever was changed: what
// tree arcs carry follows from supplies and from the arcs at capacity, and where that is more or less than an arc
// can, the arc leaves the tree and what hung there hangs at the root, by an artificial arc that carries the rest.
func (s *Solver) repair() {
	t := s.tree.place
	s.order = s.tree.sorted(s.order)
	excess := s.excess()
	for i := len(s.order) - 1; i > 0; i-- {
		s.settle(s.order[i], excess)
	}
	for i := range t {
		t[i].size = 1
	}
	// What hangs at the root now hung further down in this order: parents still come before children.
	for i := len(s.order) - 1; i > 0; i-- {
		node := s.order[i]
		t[t[node].parent].size += t[node].size
	}
}

// excess returns what arcs outside the tree leave at each node.
func (s *Solver) excess() []int64 {
	n := s.network
	excess := make([]int64, len(s.price))
	copy(excess, n.supply)
	for arc, st := range s.state {
		if st != atCapacity {
			continue
		}
		if units := n.capacity[arc]; units == Unlimited {
			s.state[arc] = empty
		} else {
			excess[n.tail[arc]] -= units
			excess[n.head[arc]] += units
		}
	}
	return excess
}

// settle sends the excess of a node, to which its children have added theirs, to its parent.
func (s *Solver) settle(node int32, excess []int64) {
	n := s.network
	p := &s.tree.place[node]
	units := excess[node]
	if p.arc >= 0 {
		capacity := residual(n.capacity[p.arc])
		outward := n.tail[p.arc] == node
		if outward {
			p.up, p.down = capacity-units, units
		} else {
			p.up, p.down = -units, capacity+units
		}
		if p.up > 0 && p.down >= 0 {
			excess[p.parent] += units
			return
		}
		units = s.release(node, units, outward, excess)
	}
	if units < 0 {
		p.hook = hook{arc: deficit, entry: none, up: -units, down: endless}
	} else {
		p.hook = hook{arc: surplus, entry: none, up: endless, down: units}
	}
}

// release takes the arc between a node and its parent out of the tree, full or empty, whichever is nearer to what it
// should carry, and hangs the node at the root. It returns how many units that leaves for the node's next arc.
func (s *Solver) release(node int32, units int64, outward bool, excess []int64) (rest int64) {
	arc, parent := s.tree.place[node].arc, s.tree.place[node].parent
	s.tree.detach(node)
	s.tree.attach(node, s.tree.root())
	s.state[arc] = empty
	if outward == (units < 0) || units == 0 {
		return units
	}
	s.state[arc] = atCapacity
	carried := s.network.capacity[arc]
	if !outward {
		carried = -carried
	}
	excess[parent] += carried
	return units - carried
}

// reprice sets prices so that no arc of the tree has a reduced cost.
func (s *Solver) reprice() {
	n, t := s.network, s.tree.place
	s.order = s.tree.sorted(s.order)
	s.price[s.tree.root()] = 0
	for _, node := range s.order[1:] {
		p := &t[node]
		above := s.price[p.parent]
		switch {
		case p.arc == surplus:
			s.price[node] = above - s.penalty
		case p.arc == deficit:
			s.price[node] = above + s.penalty
		case n.tail[p.arc] == node:
			s.price[node] = above - n.cost[p.arc]
		default:
			s.price[node] = above + n.cost[p.arc]
		}
	}
}
