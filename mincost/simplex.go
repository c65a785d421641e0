package mincost

import (
	"fmt"
	"iter"
)

// Solver finds flows of least cost in one network by the primal network simplex method. It keeps its spanning tree:
// after changes of the network Solve starts from the tree of the last one, which for few changes takes a small part
// of the time. Equal calls in equal order give equal flows.
//
// A Solver is for one caller at a time.
type Solver struct {
	network *Network
	tree    tree
	price   []int64 // by node, the root's last; only differences mean something
	state   []int8  // by arc
	penalty int64   // what artificial arcs cost: more than any path of the network's own

	candidates candidates
	pivots     int
	units      int // the version of the network's supplies and capacities that the tree is of
	solved     Flow
	used       []int32 // arcs that carry something in the solved flow
	order      []int32 // nodes, parents before children; scratch
	stack      []int32 // scratch
	near       bool    // the first tree is thought to be near the optimum
}

// The states of arcs. As numbers they are what a reduced cost is multiplied with to see whether a change would save.
const (
	atCapacity int8 = iota - 1
	inTree
	empty
)

// NewSolver returns a solver of a network.
func NewSolver(n *Network) *Solver {
	nodes := n.Nodes()
	return &Solver{network: n, tree: newTree(nodes), price: make([]int64, nodes+1), units: -1}
}

// seed proposes an arc of the first tree: it hangs a node, which hung at the root, at the other end of the arc. Arcs
// that cannot be part of a strongly feasible tree are repaired.
func (s *Solver) seed(node, arc int) {
	s.extend()
	parent := s.network.tail[arc] + s.network.head[arc] - int32(node)
	s.tree.detach(int32(node))
	s.tree.attach(int32(node), parent)
	s.tree.place[node].arc = int32(arc)
	s.state[arc] = inTree
}

// patience is how many pivots are done before stop is asked again.
const patience = 64

// Solve finds a flow of least cost. The network must supply as much as it demands.
//
// From time to time stop is asked whether to give up, which is ErrStopped; the next Solve goes on from there. It may be
// nil. The flow is the solver's: it is good until the next Solve.
func (s *Solver) Solve(stop func() bool) (*Flow, error) {
	if err := s.run(stop); err != nil {
		return nil, fmt.Errorf("solving a minimum-cost flow: %w", err)
	}
	s.carry()
	f := &s.solved
	f.Price = append(f.Price[:0], s.price[:s.network.Nodes()]...)
	root := s.price[s.tree.root()]
	for node := range f.Price {
		f.Price[node] -= root
	}
	f.Pivots = s.pivots
	var err error
	if f.Cost, err = costOf(s.network, f.Units, s.used); err != nil {
		return nil, fmt.Errorf("solving a minimum-cost flow: %w", err)
	}
	return f, nil
}

// run makes the tree optimal.
func (s *Solver) run(stop func() bool) error {
	longest, err := s.network.check()
	if err != nil {
		return err
	}
	s.penalty, s.pivots = longest+1, 0
	first := len(s.candidates.runs) == 0
	s.extend()
	s.candidates.cut(s.network)
	if s.units != s.network.units {
		s.units = s.network.units
		s.repair()
	}
	s.reprice()
	if first && !s.near {
		s.begin()
	} else {
		s.refresh()
	}
	if err := s.improve(stop); err != nil {
		return err
	}
	if !s.feasible() {
		return ErrInfeasible
	}
	return nil
}

// extend makes room for arcs that are new.
func (s *Solver) extend() {
	known, arcs := len(s.state), s.network.Arcs()
	if known == arcs {
		return
	}
	s.state = append(s.state, make([]int8, arcs-known)...)
	for arc := known; arc < arcs; arc++ {
		s.state[arc] = empty
	}
}

// improve pivots until nothing can be saved.
func (s *Solver) improve(stop func() bool) error {
	for {
		if stop != nil && s.pivots%patience == 0 && stop() {
			return ErrStopped
		}
		entry := s.search()
		if entry < 0 {
			return nil
		}
		if !s.pivot(entry) {
			return ErrUnbounded
		}
		s.pivots++
	}
}

// pivot pushes as much as possible around the cycle that an arc closes in the tree, and exchanges the arc for the one
// that allows no more. Of several it is the last one on the way round from the top of the cycle: that keeps the tree
// strongly feasible. It returns false if the cycle has no limit.
func (s *Solver) pivot(entry int32) bool {
	n, t := s.network, s.tree.place
	// The cycle runs from its top down to from, over the arc to to, and up again.
	e := &s.candidates.list[entry]
	arc, from, to := s.candidates.arc[entry], e.tail, e.head
	capacity := residual(n.capacity[arc])
	top := s.tree.meet(from, to)
	units, cut, inside, outside := capacity, int32(none), from, to
	for at := from; at != top; at = t[at].parent {
		if t[at].down < units {
			units, cut = t[at].down, at
		}
	}
	for at := to; at != top; at = t[at].parent {
		if t[at].up <= units {
			units, cut, inside, outside = t[at].up, at, to, from
		}
	}
	if units > endless/2 {
		return false
	}
	if units > 0 {
		for at := from; at != top; at = t[at].parent {
			t[at].down -= units
			t[at].up += units
		}
		for at := to; at != top; at = t[at].parent {
			t[at].up -= units
			t[at].down += units
		}
	}
	if cut < 0 {
		s.state[arc] = -s.state[arc]
		*e = s.candidate(arc)
		return true
	}
	s.exchange(entry, cut, top, inside, outside, units, capacity-units)
	return true
}

// exchange takes a candidate into the tree, between a node inside what the cut makes loose and one outside. On the way
// from the tail of the cycle to its head it carries units more than it did, and can carry rest more.
func (s *Solver) exchange(entry, cut, top, inside, outside int32, units, rest int64) {
	list := s.candidates.list
	if old := s.tree.place[cut].arc; old >= 0 {
		s.state[old] = s.bound(cut)
		if at := s.tree.place[cut].entry; at >= 0 {
			list[at] = s.candidate(old)
		}
	}
	e, arc := &list[entry], s.candidates.arc[entry]
	s.state[arc] = inTree
	up, down := rest, units
	by := -(e.cost + s.price[e.tail] - s.price[e.head])
	if e.tail != inside {
		up, down, by = down, up, -by
	}
	s.tree.rehang(cut, top, inside, outside, hook{arc: arc, entry: entry, up: up, down: down})
	s.stack = s.tree.shift(inside, by, s.price, s.stack)
}

// bound returns the state that the arc above a node leaves the tree in.
func (s *Solver) bound(node int32) int8 {
	p := &s.tree.place[node]
	carried := p.down // of an arc to the parent
	if s.network.tail[p.arc] != node {
		carried = p.up
	}
	if carried == 0 {
		return empty
	}
	return atCapacity
}

// residual returns a capacity as the tree counts it.
func residual(capacity int64) int64 {
	if capacity == Unlimited {
		return endless
	}
	return capacity
}

// feasible says whether the arcs of the network carry everything, and artificial ones nothing.
func (s *Solver) feasible() bool {
	for i := range s.tree.place {
		if p := &s.tree.place[i]; p.arc == surplus && p.down > 0 || p.arc == deficit && p.up > 0 {
			return false
		}
	}
	return true
}

// carry writes down what each arc carries.
func (s *Solver) carry() {
	f := &s.solved
	for _, arc := range s.used {
		f.Units[arc] = 0
	}
	s.used = s.used[:0]
	if missing := s.network.Arcs() - len(f.Units); missing > 0 {
		f.Units = append(f.Units, make([]int64, missing)...)
	}
	for arc, units := range s.carrying() {
		f.Units[arc] = units
		s.used = append(s.used, arc)
	}
}

// carrying returns the arcs that carry something, and how much.
func (s *Solver) carrying() iter.Seq2[int32, int64] {
	n := s.network
	return func(yield func(arc int32, units int64) bool) {
		for arc, st := range s.state {
			if st == atCapacity && n.capacity[arc] > 0 && !yield(int32(arc), n.capacity[arc]) {
				return
			}
		}
		for node := range n.supply {
			p := &s.tree.place[node]
			if p.arc < 0 {
				continue
			}
			units := p.up
			if n.tail[p.arc] == int32(node) {
				units = p.down
			}
			if units > 0 && !yield(p.arc, units) {
				return
			}
		}
	}
}
