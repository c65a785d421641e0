package mincost_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/kubenergy/kubenergy/mincost"
)

func solve(t testing.TB, s *mincost.Solver, n *mincost.Network) *mincost.Flow {
	t.Helper()
	f, err := s.Solve(nil)
	if errors.Is(err, mincost.ErrInfeasible) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Certify(n); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRandomX(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	feasible := 0
	for range 3000 {
		nodes := 2 + r.IntN(12)
		n := mincost.NewNetwork(nodes)
		for range r.IntN(5) {
			a, b, u := r.IntN(nodes), r.IntN(nodes), r.Int64N(6)
			_ = u
			n.SetSupply(a, u)
			if a != b {
				n.SetSupply(b, -u)
			}
		}
		arcs := r.IntN(40)
		for range arcs {
			n.AddArc(r.IntN(nodes), r.IntN(nodes), r.Int64N(8), r.Int64N(21)-6)
		}
		s := mincost.NewSolver(n)
		f, err := s.Solve(nil)
		if errors.Is(err, mincost.ErrInfeasible) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Certify(n); err != nil {
			t.Fatal(err)
		}
		feasible++
		for range 5 {
			if arcs > 0 {
				for range 3 {
					n.SetCost(r.IntN(arcs), r.Int64N(21)-6)
					n.SetCapacity(r.IntN(arcs), r.Int64N(8))
				}
			}
			f := solve(t, s, n)
			g := solve(t, mincost.NewSolver(n), n)
			if (f == nil) != (g == nil) || f != nil && f.Cost != g.Cost {
				t.Fatal(f, g)
			}
		}
	}
	t.Log(feasible)
}

func dense(r *rand.Rand, rows, cols int) *mincost.Network {
	n := mincost.NewNetwork(rows + cols + 1)
	n.Grow(rows*cols + cols)
	for row := range rows {
		n.SetSupply(row, 1)
		for col := range cols {
			n.AddArc(row, rows+col, mincost.Unlimited, r.Int64N(1000000))
		}
	}
	for col := range cols {
		n.AddArc(rows+col, rows+cols, int64((rows+cols-1)/cols), 0)
	}
	n.SetSupply(rows+cols, -int64(rows))
	return n
}

func BenchmarkDense(b *testing.B) {
	n := dense(rand.New(rand.NewPCG(1, 1)), 1000, 1000)
	for b.Loop() {
		f, err := mincost.NewSolver(n).Solve(nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(f.Pivots), "pivots")
	}
}
