package mincost_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/mincost"
)

// drawTransport draws a transport with many rows and columns that are alike.
func drawTransport(t *rapid.T, side int, units int64) *mincost.Transport {
	shapes, kinds := rapid.IntRange(1, 3).Draw(t, "shapes"), rapid.IntRange(1, 3).Draw(t, "kinds")
	rows := rapid.SliceOfN(rapid.IntRange(0, shapes-1), 0, side).Draw(t, "rows")
	cols := rapid.SliceOfN(rapid.IntRange(0, kinds-1), 0, side).Draw(t, "cols")
	span := rapid.SampledFrom([]int64{1, 4, 1000, mincost.MaxCost}).Draw(t, "span")
	cost := rapid.SliceOfN(rapid.Int64Range(-span, span), shapes*kinds, shapes*kinds).Draw(t, "cost")
	missing := rapid.SliceOfN(rapid.IntRange(0, 3), shapes*kinds, shapes*kinds).Draw(t, "missing")
	limit := rapid.SliceOfN(rapid.Int64Range(0, units), shapes*kinds, shapes*kinds).Draw(t, "limit")
	alone := rapid.SliceOfN(rapid.Int64Range(-span, span), shapes, shapes).Draw(t, "alone")
	limited, priced := rapid.Bool().Draw(t, "limited"), rapid.Bool().Draw(t, "priced")

	transport := &mincost.Transport{}
	for _, shape := range rows {
		transport.Count = append(transport.Count, rapid.Int64Range(0, units).Draw(t, "count"))
		if priced {
			transport.Alone = append(transport.Alone, alone[shape])
		}
		for _, kind := range cols {
			cell := shape*kinds + kind
			c := cost[cell]
			if missing[cell] == 0 {
				c = mincost.Missing
			}
			transport.Cost = append(transport.Cost, c)
			if limited {
				transport.Limit = append(transport.Limit, limit[cell])
			}
		}
	}
	for range cols {
		transport.Room = append(transport.Room, rapid.Int64Range(0, units+1).Draw(t, "room"))
	}
	return transport
}

// worth is what decides between shipments: units that are placed, if nothing else is said, and costs.
type worth struct{ left, cost int64 }

func worthOf(t *mincost.Transport, s *mincost.Shipment) (w worth) {
	w.cost = s.Cost
	for row, left := range s.Left {
		if t.Alone == nil {
			w.left += left
		} else {
			w.cost += left * t.Alone[row]
		}
	}
	return w
}

func (w worth) better(than worth) bool {
	return w.left < than.left || w.left == than.left && w.cost < than.cost
}

// bestShipment tries all: cell by cell, each number of units.
func bestShipment(t *mincost.Transport) (best worth) {
	count, room := slices.Clone(t.Count), slices.Clone(t.Room)
	best.left = math.MaxInt64
	var try func(cell int, cost int64)
	try = func(cell int, cost int64) {
		if cell == len(t.Cost) {
			if w := worthOf(t, &mincost.Shipment{Left: count, Cost: cost}); w.better(best) {
				best = w
			}
			return
		}
		row, col := cell/len(room), cell%len(room)
		most := min(count[row], room[col])
		if t.Cost[cell] == mincost.Missing {
			most = 0
		}
		if t.Limit != nil {
			most = min(most, t.Limit[cell])
		}
		for units := range most + 1 {
			count[row] -= units
			room[col] -= units
			spent := int64(0)
			if units > 0 {
				spent = units * t.Cost[cell]
			}
			try(cell+1, cost+spent)
			count[row] += units
			room[col] += units
		}
	}
	try(0, 0)
	return best
}

func certified(t rapid.TB, transport *mincost.Transport, s *mincost.Shipment, err error) *mincost.Shipment {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Certify(transport); err != nil {
		t.Fatalf("%v\n%+v\n%+v", err, transport, s)
	}
	return s
}

func TestTransportIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		transport := drawTransport(t, 3, 2)
		s, err := new(mincost.TransportSolver).Solve(transport, nil)
		if got, want := worthOf(transport, certified(t, transport, s, err)), bestShipment(transport); got != want {
			t.Fatalf("%+v, best is %+v: %+v", got, want, transport)
		}
	})
}

// Aggregation loses nothing: the raw solve proves it, and both carry proofs for the transport as it was stated.
func TestAggregationIsExact(t *testing.T) {
	merged := false
	rapid.Check(t, func(t *rapid.T) {
		transport := drawTransport(t, 8, 5)
		raw, err := new(mincost.TransportSolver).Solve(transport, nil)
		certified(t, transport, raw, err)
		classes, err := mincost.Aggregate(transport)
		if err != nil {
			t.Fatal(err)
		}
		merged = merged || len(classes.Transport.Cost) < len(transport.Cost)
		small, err := new(mincost.TransportSolver).Solve(classes.Transport, nil)
		aggregated := certified(t, transport, classes.Expand(certified(t, classes.Transport, small, err)), nil)
		if got, want := worthOf(transport, aggregated), worthOf(transport, raw); got != want {
			t.Fatalf("%+v, raw %+v", got, want)
		}
		whole, err := mincost.SolveTransport(transport, nil)
		if !slices.Equal(certified(t, transport, whole, err).Lots, aggregated.Lots) {
			t.Fatalf("%+v and %+v", whole, aggregated)
		}
	})
	if !merged {
		t.Error("nothing was ever alike")
	}
}

// Rows that differ in a few costs are told apart, however alike they look.
func TestAggregateLooksClosely(t *testing.T) {
	const rows, cols = 60, 100
	transport := &mincost.Transport{
		Count: make([]int64, rows), Room: make([]int64, cols), Cost: make([]int64, rows*cols),
	}
	for row := range transport.Count {
		transport.Cost[row*cols+1+row%20] = 5
		transport.Cost[row*cols+50] = int64(row % 2)
	}
	classes, err := mincost.Aggregate(transport)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(classes.Transport.Count); got != 20 {
		t.Errorf("%d classes of rows", got)
	}
	// those that are dear to one kind, that to every second, the others
	if got := len(classes.Transport.Room); got != 20+2 {
		t.Errorf("%d classes of columns", got)
	}
}

// Transports in which each unit and each place is one of its own are assignment problems.
func TestTransportIsAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMatrix(t, 8)
		transport := &mincost.Transport{Cost: m.Cost, Count: make([]int64, m.Rows), Room: make([]int64, m.Cols)}
		for row := range transport.Count {
			transport.Count[row] = 1
		}
		for col := range transport.Room {
			transport.Room[col] = 1
		}
		a := assign(t, m)
		s, err := mincost.SolveTransport(transport, nil)
		if certified(t, transport, s, err); int(s.Placed) != a.Size || s.Cost != a.Total {
			t.Fatalf("%+v, assigned %+v", s, a)
		}
	})
}

// One solver for transports of the same size that have nothing else in common.
func TestTransportSolvedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var again mincost.TransportSolver
		first := drawTransport(t, 6, 5)
		rows, cols := len(first.Count), len(first.Room)
		for range 5 {
			next := drawTransport(t, 6, 5)
			if len(next.Count) != rows || len(next.Room) != cols { // take what fits
				next = &mincost.Transport{
					Count: first.Count, Room: slices.Clone(first.Room), Cost: slices.Clone(first.Cost),
					Limit: first.Limit, Alone: first.Alone,
				}
				for cell := range next.Cost {
					switch rapid.IntRange(0, 5).Draw(t, "change") {
					case 0:
						next.Cost[cell] = mincost.Missing
					case 1:
						next.Cost[cell] = rapid.Int64Range(-9, 9).Draw(t, "cost")
					}
				}
				for col := range next.Room {
					next.Room[col] = rapid.Int64Range(0, 6).Draw(t, "room")
				}
			}
			s, err := again.Solve(next, nil)
			anew, err2 := new(mincost.TransportSolver).Solve(next, nil)
			if worthOf(next, certified(t, next, s, err)) != worthOf(next, certified(t, next, anew, err2)) {
				t.Fatalf("%+v, anew %+v", s, anew)
			}
		}
	})
}

// What is left when there is no time keeps all limits, is no better than the best, and no worse than Greedy.
func TestTransportStopped(t *testing.T) {
	stopped := 0
	rapid.Check(t, func(t *rapid.T) {
		transport := drawTransport(t, 8, 5)
		greedy, err := mincost.Greedy(transport)
		if err != nil || greedy.Check(transport) != nil {
			t.Fatal(err, greedy.Check(transport))
		}
		best, err := mincost.SolveTransport(transport, nil)
		certified(t, transport, best, err)
		if worthOf(transport, greedy).better(worthOf(transport, best)) {
			t.Fatalf("%+v is better than %+v", greedy, best)
		}
		whole, err := mincost.SolveTransport(transport, func() bool { return true })
		if err != nil || whole.Check(transport) != nil || whole.Optimal {
			t.Fatal(err, whole.Check(transport))
		}
		var solver mincost.TransportSolver
		for patience := range 4 {
			asked := 0
			s, err := solver.Solve(transport, func() bool { asked++; return asked > patience })
			if err != nil || s.Check(transport) != nil {
				t.Fatal(err, s.Check(transport))
			}
			if worthOf(transport, greedy).better(worthOf(transport, s)) ||
				worthOf(transport, s).better(worthOf(transport, best)) {
				t.Fatalf("%+v, greedy %+v, best %+v", s, greedy, best)
			}
			if s.Optimal {
				certified(t, transport, s, nil)
				continue
			}
			stopped++
			if s.Certify(transport) == nil {
				t.Fatal("certified what was stopped")
			}
		}
		s, err := solver.Solve(transport, nil)
		if worthOf(transport, certified(t, transport, s, err)) != worthOf(transport, best) {
			t.Fatalf("%+v, best %+v", s, best)
		}
	})
	if stopped == 0 {
		t.Error("nothing was ever stopped")
	}
}

// A solve that is stopped after a change starts from what the last one found, which no row-by-row choice comes near.
func TestTransportStoppedIsNearTheLast(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	transport := &mincost.Transport{}
	for range 30 {
		transport.Count = append(transport.Count, 20)
		for range 100 {
			transport.Cost = append(transport.Cost, r.Int64N(1000))
		}
	}
	for range 100 {
		transport.Room = append(transport.Room, 6)
	}
	var solver mincost.TransportSolver
	s, err := solver.Solve(transport, nil)
	certified(t, transport, s, err)
	transport.Cost[7]++
	stopped, err := solver.Solve(transport, func() bool { return true })
	if err != nil || stopped.Check(transport) != nil || stopped.Optimal {
		t.Fatal(err, stopped.Check(transport))
	}
	greedy, err := mincost.Greedy(transport)
	if err != nil {
		t.Fatal(err)
	}
	if stopped.Placed != 600 || stopped.Cost > s.Cost+20 || greedy.Cost <= stopped.Cost {
		t.Errorf("stopped at %d, the last cost %d, greedy %d", stopped.Cost, s.Cost, greedy.Cost)
	}
}

func TestTransportRefuses(t *testing.T) {
	for name, transport := range map[string]*mincost.Transport{
		"too few costs":           {Count: []int64{1}, Room: []int64{1, 1}, Cost: []int64{1}},
		"too many limits":         {Count: []int64{1}, Room: []int64{1}, Cost: []int64{1}, Limit: []int64{1, 1}},
		"alone of other rows":     {Count: []int64{1}, Room: []int64{1}, Cost: []int64{1}, Alone: []int64{1, 1}},
		"a hidden negative count": {Count: []int64{-1, 2}, Room: []int64{1}, Cost: []int64{1, 1}},
		"a negative count":        {Count: []int64{-1}, Room: []int64{1}, Cost: []int64{1}},
		"counts that overflow":    {Count: []int64{1 << 40, 1 << 40}, Room: []int64{1}, Cost: []int64{1, 1}},
		"a negative room":         {Count: []int64{1}, Room: []int64{-1}, Cost: []int64{1}},
		"a negative limit":        {Count: []int64{1}, Room: []int64{1}, Cost: []int64{1}, Limit: []int64{-1}},
		"a cost that is too high": {Count: []int64{1}, Room: []int64{1}, Cost: []int64{mincost.MaxCost + 1}},
		"a cost that is too low":  {Count: []int64{1}, Room: []int64{1}, Cost: []int64{math.MinInt64}},
		"a total that overflows":  {Count: []int64{1 << 30}, Room: []int64{1 << 30}, Cost: []int64{1 << 34}},
		"a high cost of being alone": {
			Count: []int64{1}, Room: []int64{1}, Cost: []int64{1},
			Alone: []int64{math.MinInt64},
		},
	} {
		if s, err := mincost.SolveTransport(transport, nil); err == nil {
			t.Errorf("%s: solved: %+v", name, s)
		}
		if s, err := new(mincost.TransportSolver).Solve(transport, nil); err == nil {
			t.Errorf("%s: solved: %+v", name, s)
		}
		if s, err := mincost.Greedy(transport); err == nil {
			t.Errorf("%s: placed: %+v", name, s)
		}
	}
}

func TestTransportAtItsLimits(t *testing.T) {
	for name, transport := range map[string]*mincost.Transport{
		"nothing":     {},
		"no room":     {Count: []int64{5}},
		"no units":    {Room: []int64{5}},
		"all missing": {Count: []int64{5}, Room: []int64{5}, Cost: []int64{mincost.Missing}},
		"endless room": {
			Count: []int64{5, 7}, Room: []int64{mincost.Unlimited, mincost.Unlimited},
			Cost: []int64{1, 2, 1, 2},
		},
		"dearest units": {
			Count: []int64{1 << 22}, Room: []int64{1 << 22},
			Cost: []int64{mincost.MaxCost},
		},
		"most units":  {Count: []int64{1 << 40}, Room: []int64{1 << 39}, Cost: []int64{-(1 << 22)}},
		"limits of 0": {Count: []int64{5}, Room: []int64{5}, Cost: []int64{1}, Limit: []int64{0}},
		"rooms that overflow": {
			Count: []int64{1, 1}, Room: []int64{1 << 60, 1 << 60},
			Cost: []int64{1, 2, 2, 1},
		},
		"rows alike that limits bind": {
			Count: []int64{2, 2}, Room: []int64{2, 2}, Cost: []int64{1, 2, 1, 2},
			Limit: []int64{1, 1, 1, 1},
		},
		"columns alike that limits bind": {
			Count: []int64{3, 2}, Room: []int64{3, 3}, Cost: []int64{1, 1, 2, 2},
			Limit: []int64{2, 2, 1, 1},
		},
		"endless limits": {
			Count: []int64{5}, Room: []int64{5}, Cost: []int64{1},
			Limit: []int64{mincost.Unlimited},
		},
	} {
		s, err := mincost.SolveTransport(transport, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := s.Certify(transport); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCertifyShipmentRefuses(t *testing.T) {
	for name, spoil := range map[string]func(s *mincost.Shipment, t *mincost.Transport){
		"a unit less": func(s *mincost.Shipment, _ *mincost.Transport) { s.Lots[0].Units-- },
		"a unit left": func(s *mincost.Shipment, _ *mincost.Transport) {
			s.Lots[0].Units--
			s.Left[0]++
			s.Placed--
			s.Cost -= s.Cost / 4
		},
		"a dearer place": func(s *mincost.Shipment, t *mincost.Transport) {
			s.Lots[1].Col = 0
			s.Cost += (t.Cost[2] - t.Cost[3]) * s.Lots[1].Units
		},
		"no such column":        func(s *mincost.Shipment, _ *mincost.Transport) { s.Lots[0].Col = 2 },
		"no such row":           func(s *mincost.Shipment, _ *mincost.Transport) { s.Lots[0].Row = -1 },
		"another cost":          func(s *mincost.Shipment, _ *mincost.Transport) { s.Cost-- },
		"not optimal":           func(s *mincost.Shipment, _ *mincost.Transport) { s.Optimal = false },
		"a cheaper cell":        func(_ *mincost.Shipment, t *mincost.Transport) { t.Cost[1] = -5 },
		"less room":             func(_ *mincost.Shipment, t *mincost.Transport) { t.Room[0]-- },
		"more room":             func(_ *mincost.Shipment, t *mincost.Transport) { t.Room[0]++ },
		"a limit":               func(_ *mincost.Shipment, t *mincost.Transport) { t.Limit = []int64{1, 1, 1, 1} },
		"a cost of being alone": func(_ *mincost.Shipment, t *mincost.Transport) { t.Alone = []int64{0, 0} },
		"another row": func(_ *mincost.Shipment, t *mincost.Transport) {
			t.Count, t.Cost = append(t.Count, 0), append(t.Cost, 1, 1)
		},
	} {
		transport := &mincost.Transport{Count: []int64{2, 2}, Room: []int64{2, 3}, Cost: []int64{1, 4, 2, 3}}
		s, err := mincost.SolveTransport(transport, nil)
		if certified(t, transport, s, err); s.Cost != 8 || len(s.Lots) != 2 {
			t.Fatalf("%+v", s)
		}
		spoil(s, transport)
		if s.Certify(transport) == nil {
			t.Errorf("%s: certified", name)
		}
	}
}

// pods is a transport of units of a few shapes in columns that all differ.
func pods(r *rand.Rand, units int64, shapes, nodes int) *mincost.Transport {
	t := &mincost.Transport{Count: make([]int64, shapes), Room: make([]int64, nodes), Cost: make([]int64, shapes*nodes)}
	for shape := range t.Count {
		t.Count[shape] = units / int64(shapes)
	}
	for node := range t.Room {
		t.Room[node] = 1 + units*6/5/int64(nodes)
	}
	for cell := range t.Cost {
		t.Cost[cell] = r.Int64N(1_000_000)
	}
	return t
}

func BenchmarkTransport(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	transport := pods(r, 100_000, 24, 5000)
	b.Run("anew", func(b *testing.B) {
		for b.Loop() {
			if _, err := mincost.SolveTransport(transport, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		var solver mincost.TransportSolver
		for b.Loop() {
			transport.Cost[r.IntN(len(transport.Cost))] += r.Int64N(1001) - 500
			if _, err := solver.Solve(transport, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("greedy", func(b *testing.B) {
		for b.Loop() {
			if _, err := mincost.Greedy(transport); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func ExampleSolveTransport() {
	t := &mincost.Transport{
		Count: []int64{6, 3},    // pods of two shapes
		Room:  []int64{4, 4, 4}, // on three nodes, of which the last two are alike
		Cost: []int64{
			1, 2, 2,
			5, 1, 1,
		},
	}
	s, err := mincost.SolveTransport(t, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Lots, s.Placed, s.Cost, s.Certify(t))
	// Output: [{0 0 4} {0 1 2} {1 1 2} {1 2 1}] 9 11 <nil>
}

// TestColumnsThatLookAlike: all cost the same, and nothing, but take up to so many.
func TestColumnsThatLookAlike(t *testing.T) {
	const cols = 40
	tr := &mincost.Transport{Count: []int64{cols, 2 * cols}, Cost: make([]int64, 2*cols)}
	for col := range cols {
		tr.Room = append(tr.Room, 5)
		tr.Limit = append(tr.Limit, int64(col%8))
	}
	tr.Limit = append(tr.Limit, tr.Limit...)
	classes, err := mincost.Aggregate(tr)
	if err != nil || len(classes.Transport.Room) != 6 { // a limit of 5 or more is none
		t.Fatalf("%d classes, error %v", len(classes.Transport.Room), err)
	}
	s, err := mincost.SolveTransport(tr, nil)
	if err == nil {
		err = s.Certify(tr)
	}
	if err != nil {
		t.Error(err)
	}
}
