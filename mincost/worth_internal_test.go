package mincost

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// wide is a transport of few rows and many columns, of all that one may have: favourites that all rows share, missing
// cells, limits, columns without room or without limit, more units than room.
func wide(r *rand.Rand) *Transport {
	rows, cols := r.IntN(8), smallest+r.IntN(300)
	t := &Transport{Count: make([]int64, rows), Room: make([]int64, cols), Cost: make([]int64, rows*cols)}
	for row := range t.Count {
		t.Count[row] = r.Int64N(200)
	}
	for col := range t.Room {
		t.Room[col] = r.Int64N(6)
		if r.IntN(100) == 0 {
			t.Room[col] = Unlimited
		}
	}
	missing, limited, shared := r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	for cell := range t.Cost {
		t.Cost[cell] = r.Int64N(1000) - 100
		if shared {
			t.Cost[cell] = int64(1+cell/cols)*int64(1+cell%cols) + r.Int64N(9)
		}
		if missing && r.IntN(3) == 0 {
			t.Cost[cell] = Missing
		}
		if limited {
			t.Limit = append(t.Limit, r.Int64N(5))
		}
	}
	if r.IntN(2) == 0 {
		for range rows {
			t.Alone = append(t.Alone, r.Int64N(1500)-200)
		}
	}
	return t
}

func TestWideTransports(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for range 300 {
		transport := wide(r)
		s, err := new(TransportSolver).Solve(transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Certify(transport); err != nil {
			t.Fatal(err)
		}
		asked, patience := 0, r.IntN(6)
		s, err = new(TransportSolver).Solve(transport, func() bool { asked++; return asked > patience })
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(transport); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWideTransportsAgain: cells that had no arc, or were missing, are taken when they become cheap, and a solve that
// was stopped is gone on with.
func TestWideTransportsAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 28))
	admitted := 0
	for range 100 {
		transport := wide(r)
		cost := func() int64 {
			if r.IntN(3) == 0 {
				return Missing
			}
			return r.Int64N(1000) - 100
		}
		var solver TransportSolver
		for range 4 {
			asked, patience := 0, r.IntN(6)
			s, err := solver.Solve(transport, func() bool { asked++; return asked > patience })
			if err == nil {
				err = s.Check(transport)
			}
			if err == nil && s.penalised() > transport.greedy(s.alone).penalised() {
				t.Fatal("a solve that was stopped is worse than greedy")
			}
			arcs := len(solver.cells)
			if err == nil {
				s, err = solver.Solve(transport, nil)
			}
			if arcs > 0 && len(solver.cells) > arcs {
				admitted++
			}
			if err == nil {
				err = s.Certify(transport)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range len(transport.Cost) / 10 {
				transport.Cost[r.IntN(len(transport.Cost))] = cost()
			}
			transport.Room[r.IntN(len(transport.Room))] = r.Int64N(6)
		}
	}
	if admitted < 50 {
		t.Errorf("cells were given an arc in %d solves: not much was tried", admitted)
	}
}

// crammed is a transport of a few shapes that all like the same columns best, which have room for a part of the units.
func crammed(r *rand.Rand, rows, cols int, units int64) *Transport {
	t := &Transport{}
	for range rows {
		t.Count = append(t.Count, units)
		size := 1 + r.Int64N(1000)
		for col := range cols {
			t.Cost = append(t.Cost, size*int64(100+col*37%900)+r.Int64N(20*size))
		}
	}
	for range cols {
		t.Room = append(t.Room, 3)
	}
	return t
}

// TestFewCellsHaveArcs: also where there is too little room, or just enough, and being alone costs much more than any
// column.
func TestFewCellsHaveArcs(t *testing.T) {
	for _, units := range []int64{50, 75, 100} {
		transport := crammed(rand.New(rand.NewPCG(29, 30)), 24, 600, units)
		for _, alone := range []int64{0, 1 << 35} {
			if alone > 0 {
				transport.Alone = slices.Repeat([]int64{alone}, 24)
			}
			var solver TransportSolver
			s, err := solver.Solve(transport, nil)
			if err == nil {
				err = s.Certify(transport)
			}
			if err != nil {
				t.Fatal(err)
			}
			if arcs := len(solver.cells) - 24 - 600; 3*arcs > len(transport.Cost) {
				t.Errorf("%d units of each row, alone they cost %d: %d of %d cells have an arc", units, alone, arcs,
					len(transport.Cost))
			}
		}
	}
}

// TestStoppedBeforeTheFirstTree: the next solve begins as if there had been none.
func TestStoppedBeforeTheFirstTree(t *testing.T) {
	transport := crammed(rand.New(rand.NewPCG(31, 32)), 12, 600, 100)
	var once, solver TransportSolver
	if _, err := once.Solve(transport, nil); err != nil {
		t.Fatal(err)
	}
	s, err := solver.Solve(transport, func() bool { return true })
	if err == nil {
		err = s.Check(transport)
	}
	if err != nil || s.Optimal || s.Placed != 1200 {
		t.Fatalf("stopped at once it is %+v, error %v", s, err)
	}
	if _, err := solver.Solve(transport, nil); err != nil || len(solver.cells) != len(once.cells) {
		t.Errorf("%d arcs, in one go %d; error %v", len(solver.cells), len(once.cells), err)
	}
}

// What a sample and a few bids say leaves far less to do than a start without.
func TestWorthSparesPivots(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for _, shared := range []bool{true, false} {
		transport := &Transport{}
		for range 12 {
			transport.Count = append(transport.Count, 150)
			size := 1 + r.Int64N(1000)
			for col := range 600 {
				cost := r.Int64N(1_000_000)
				if shared {
					cost = size*int64(100+col*37%600) + r.Int64N(20*size)
				}
				transport.Cost = append(transport.Cost, cost)
			}
		}
		for range 600 {
			transport.Room = append(transport.Room, 3+r.Int64N(3))
		}
		span, err := transport.check()
		if err != nil {
			t.Fatal(err)
		}
		pivots := func(start bool) (pivots int) {
			var s TransportSolver
			var worth []int64
			alone := transport.penalties(span)
			if start {
				if worth, err = transport.worth(alone, nil); err != nil {
					t.Fatal(err)
				}
			}
			s.build(transport, worth)
			s.update(transport, alone, span.units)
			s.start(transport, worth)
			for {
				if err := s.solver.run(nil); err != nil {
					t.Fatal(err)
				}
				pivots += s.solver.pivots
				if !s.admit(transport) {
					if arcs := len(s.cells) - 12 - 600; start && 4*arcs > len(transport.Cost) {
						t.Errorf("favourites are shared: %v: %d of %d cells have an arc", shared, arcs,
							len(transport.Cost))
					}
					return pivots
				}
			}
		}
		if with, without := pivots(true), pivots(false); 2*with > without {
			t.Errorf("favourites are shared: %v: %d pivots, without a start %d", shared, with, without)
		}
	}
}

func TestMarginal(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	for range 2000 {
		lots := make([]offered, r.IntN(30))
		for i := range lots {
			lots[i] = offered{price: r.Int64N(20), room: r.Int64N(4)}
		}
		units := r.Int64N(50)
		sorted := slices.Clone(lots)
		slices.SortFunc(sorted, func(a, b offered) int { return cmp.Compare(a.price, b.price) })
		want, room := int64(99), int64(0)
		for _, l := range sorted {
			if room += l.room; room >= units {
				want = l.price
				break
			}
		}
		if got := marginal(slices.Clone(lots), units, 99); got != want {
			t.Fatalf("%d units cost %d at the margin, want %d: %v", units, got, want, sorted)
		}
	}
}
