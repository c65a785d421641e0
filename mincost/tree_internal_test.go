package mincost

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// check says what is wrong with the basis: links, sizes, prices, or a node from which nothing can be pushed to the
// root.
func (s *Solver) checkBasis(t *testing.T) {
	t.Helper()
	size := make([]int32, len(s.tree.place))
	order := s.tree.sorted(nil)
	if len(order) != len(size) {
		t.Fatalf("the tree holds %d nodes of %d", len(order), len(size))
	}
	for _, node := range slices.Backward(order) {
		p := s.tree.place[node]
		if size[node]++; size[node] != p.size {
			t.Fatalf("node %d has size %d, said to be %d", node, size[node], p.size)
		}
		if node == s.tree.root() {
			continue
		}
		size[p.parent] += size[node]
		if p.up <= 0 || p.down < 0 {
			t.Fatalf("node %d can push %d up and %d down", node, p.up, p.down)
		}
		if p.arc < 0 {
			continue
		}
		tail, head := s.network.tail[p.arc], s.network.head[p.arc]
		if tail+head != node+p.parent || s.state[p.arc] != inTree {
			t.Fatalf("node %d hangs at node %d by arc %d, from %d to %d, in state %d", node, p.parent, p.arc, tail,
				head, s.state[p.arc])
		}
		if reduced := s.network.cost[p.arc] + s.price[tail] - s.price[head]; reduced != 0 {
			t.Fatalf("arc %d of the tree has a reduced cost of %d", p.arc, reduced)
		}
		if p.entry >= 0 && s.candidates.arc[p.entry] != p.arc {
			t.Fatalf("arc %d is candidate %d, which is arc %d", p.arc, p.entry, s.candidates.arc[p.entry])
		}
	}
}

// Pivots, and repairs after changes, keep the basis what it should be: strongly feasible above all, without which
// pivots could go round for ever on the degenerate networks that placements are.
func TestBasisStaysStronglyFeasible(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	pivots := 0
	for range 150 {
		nodes := 2 + r.IntN(14)
		n := NewNetwork(nodes)
		for range 4 * nodes {
			n.AddArc(r.IntN(nodes), r.IntN(nodes), r.Int64N(3), r.Int64N(7)-1)
		}
		s := NewSolver(n)
		for range 4 {
			from, to, units := r.IntN(nodes), r.IntN(nodes), r.Int64N(3)
			n.SetSupply(from, n.supply[from]+units)
			n.SetSupply(to, n.supply[to]-units)
			n.SetCapacity(r.IntN(n.Arcs()), r.Int64N(3))
			n.SetCost(r.IntN(n.Arcs()), r.Int64N(7)-1)
			_ = s.run(func() bool { return true }) // begins only; infeasible is as good
			s.checkBasis(t)
			for entry := s.search(); entry >= 0; entry = s.search() {
				if !s.pivot(entry) {
					t.Fatal("unbounded")
				}
				pivots++
				s.checkBasis(t)
			}
		}
	}
	if pivots < 1000 {
		t.Errorf("%d pivots were checked", pivots)
	}
}
