package mincost_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/mincost"
)

// arc is what a test knows of one.
type arc struct {
	tail, head     int
	capacity, cost int64
}

// graph is a network as a test knows it.
type graph struct {
	supply []int64
	arcs   []arc
}

func (g *graph) network() *mincost.Network {
	n := mincost.NewNetwork(len(g.supply))
	for node, units := range g.supply {
		n.SetSupply(node, units)
	}
	for _, a := range g.arcs {
		n.AddArc(a.tail, a.head, a.capacity, a.cost)
	}
	return n
}

// send supplies units at one node and demands them at another.
func (g *graph) send(from, to int, units int64) {
	g.supply[from] += units
	g.supply[to] -= units
}

// drawGraph draws any network: nodes without arcs, parallel arcs, arcs from a node to itself, negative costs.
func drawGraph(t *rapid.T, nodes, arcs int, capacity int64) *graph {
	g := &graph{supply: make([]int64, rapid.IntRange(1, nodes).Draw(t, "nodes"))}
	node := rapid.IntRange(0, len(g.supply)-1)
	for range rapid.IntRange(0, 3).Draw(t, "pairs") {
		g.send(node.Draw(t, "from"), node.Draw(t, "to"), rapid.Int64Range(0, capacity).Draw(t, "units"))
	}
	span := rapid.SampledFrom([]int64{0, 1, 5, 1 << 50}).Draw(t, "span")
	for range rapid.IntRange(0, arcs).Draw(t, "arcs") {
		g.arcs = append(g.arcs, arc{
			tail: node.Draw(t, "tail"), head: node.Draw(t, "head"),
			capacity: rapid.Int64Range(0, capacity).Draw(t, "capacity"),
			cost:     rapid.Int64Range(-span, span).Draw(t, "cost"),
		})
	}
	return g
}

// best tries every flow.
func (g *graph) best() (cost int64, feasible bool) {
	left := slices.Clone(g.supply)
	var try func(at int, sum int64)
	try = func(at int, sum int64) {
		if at == len(g.arcs) {
			if !slices.ContainsFunc(left, func(units int64) bool { return units != 0 }) && (!feasible || sum < cost) {
				cost, feasible = sum, true
			}
			return
		}
		a := g.arcs[at]
		for units := range a.capacity + 1 {
			left[a.tail] -= units
			left[a.head] += units
			try(at+1, sum+units*a.cost)
			left[a.tail] += units
			left[a.head] -= units
		}
	}
	try(0, 0)
	return cost, feasible
}

// solve returns a certified flow, or nil if there is none.
func solve(t rapid.TB, s *mincost.Solver, n *mincost.Network) *mincost.Flow {
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

func TestSolveIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t, 4, 6, 2)
		n := g.network()
		f := solve(t, mincost.NewSolver(n), n)
		cost, feasible := g.best()
		if (f != nil) != feasible || feasible && f.Cost != cost {
			t.Fatalf("%+v, best is %d (feasible: %v) of %+v", f, cost, feasible, g)
		}
	})
}

// Whatever is changed, a solver that goes on from its last tree finds what one that starts anew finds.
func TestSolveAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t, 12, 50, 6)
		n := g.network()
		warm := mincost.NewSolver(n)
		node := rapid.IntRange(0, len(g.supply)-1)
		for range 6 {
			again := solve(t, warm, n)
			anew := solve(t, mincost.NewSolver(n), n)
			if (again == nil) != (anew == nil) || again != nil && again.Cost != anew.Cost {
				t.Fatalf("%+v, anew %+v", again, anew)
			}
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					g.send(node.Draw(t, "from"), node.Draw(t, "to"), rapid.Int64Range(0, 4).Draw(t, "units"))
					for i, units := range g.supply {
						n.SetSupply(i, units)
					}
				case 1:
					n.AddArc(node.Draw(t, "tail"), node.Draw(t, "head"), rapid.Int64Range(0, 6).Draw(t, "capacity"),
						rapid.Int64Range(-5, 5).Draw(t, "cost"))
				case 2:
					if n.Arcs() > 0 {
						n.SetCost(rapid.IntRange(0, n.Arcs()-1).Draw(t, "arc"), rapid.Int64Range(-5, 5).Draw(t, "cost"))
					}
				case 3:
					if n.Arcs() > 0 {
						n.SetCapacity(rapid.IntRange(0, n.Arcs()-1).Draw(t, "arc"),
							rapid.Int64Range(0, 6).Draw(t, "capacity"))
					}
				}
			}
		}
	})
}

// An assignment problem is a flow: each row that is not alone sends a unit.
func TestSolveAssignments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMatrix(t, 8)
		a := assign(t, m)
		n := mincost.NewNetwork(m.Rows + m.Cols + 1)
		sink := m.Rows + m.Cols
		alone := int64(0)
		if most := slices.Max(append(slices.DeleteFunc(slices.Clone(m.Cost),
			func(c int64) bool { return c == mincost.Missing }), 0)); len(m.Cost) > 0 {
			alone = 20 * (most + mincost.MaxCost)
		}
		for row := range m.Rows {
			n.SetSupply(row, 1)
			n.AddArc(row, sink, 1, alone)
		}
		n.SetSupply(sink, -int64(m.Rows))
		for i, cost := range m.Cost {
			if cost != mincost.Missing {
				n.AddArc(i/m.Cols, m.Rows+i%m.Cols, 1, cost)
			}
		}
		for col := range m.Cols {
			n.AddArc(m.Rows+col, sink, 1, 0)
		}
		if f := solve(t, mincost.NewSolver(n), n); f == nil || f.Cost != a.Total+int64(m.Rows-a.Size)*alone {
			t.Fatalf("%+v, and as an assignment %+v", f, a)
		}
	})
}

// crowd is a dense network of sources and sinks.
func crowd(r *rand.Rand, sources, sinks int, units int64, cost func() int64) *graph {
	g := &graph{supply: make([]int64, sources+sinks)}
	for from := range sources {
		for to := range sinks {
			g.arcs = append(g.arcs, arc{from, sources + to, mincost.Unlimited, cost()})
		}
	}
	for range units {
		g.send(r.IntN(sources), sources+r.IntN(sinks), 1)
	}
	return g
}

// What makes simplex methods cycle, overflow or stall.
func TestSolveHard(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	ring := &graph{supply: make([]int64, 200)} // each step is free one way, and all supplies are 0
	for node := range ring.supply {
		ring.arcs = append(ring.arcs, arc{node, (node + 1) % 200, 5, 0}, arc{(node + 1) % 200, node, 5, 0})
	}
	chain := &graph{supply: make([]int64, 500)} // one path, as long as the network
	chain.send(0, 499, 7)
	for node := range 499 {
		chain.arcs = append(chain.arcs, arc{node, node + 1, 7, int64(node)})
	}
	ladder := &graph{supply: make([]int64, 62)} // Zadeh's: capacities that double
	ladder.send(0, 61, 1<<20)
	for node := range 61 {
		ladder.arcs = append(ladder.arcs, arc{node, node + 1, 1 << 20, 1 << node % 40},
			arc{node, 61, 1 << (node % 20), 1 << (node % 50)})
	}
	for name, g := range map[string]*graph{
		"no node":            {},
		"nodes without arcs": {supply: make([]int64, 5)},
		"all costs equal":    crowd(r, 40, 40, 400, func() int64 { return 7 }),
		"all costs 0":        crowd(r, 40, 40, 400, func() int64 { return 0 }),
		"no supply":          crowd(r, 20, 20, 0, func() int64 { return r.Int64N(100) }),
		"more sinks":         crowd(r, 3, 100, 1000, func() int64 { return r.Int64N(100) }),
		"more sources":       crowd(r, 100, 3, 1000, func() int64 { return r.Int64N(100) }),
		"costs at the limit": crowd(r, 30, 30, 200, func() int64 { return 1<<52 - r.Int64N(2)<<53 }),
		"a ring":             ring,
		"a chain":            chain,
		"a ladder":           ladder,
		"a cycle that saves": {supply: make([]int64, 3), arcs: []arc{{0, 1, 4, -1}, {1, 2, 9, -1}, {2, 0, 5, -1}}},
		"an arc to itself": {
			supply: make([]int64, 1),
			arcs:   []arc{{0, 0, 9, -5}, {0, 0, 9, 5}, {0, 0, mincost.Unlimited, 0}},
		},
		"capacities of 0":     {supply: make([]int64, 2), arcs: []arc{{0, 1, 0, -5}, {1, 0, 0, 5}}},
		"the greatest supply": {supply: []int64{1 << 58, -1 << 58}, arcs: []arc{{0, 1, mincost.Unlimited, 3}}},
	} {
		n := g.network()
		if f := solve(t, mincost.NewSolver(n), n); f == nil {
			t.Errorf("%s: infeasible", name)
		}
	}
}

func TestSolveRefuses(t *testing.T) {
	one := func(supply []int64, arcs ...arc) *graph { return &graph{supply: supply, arcs: arcs} }
	for name, g := range map[string]*graph{
		"unbalanced": one([]int64{2, -1}, arc{0, 1, 5, 1}),
		"no way":     one([]int64{1, -1}, arc{1, 0, 5, 1}),
		"too narrow": one([]int64{3, -3}, arc{0, 1, 2, 1}),
		"two parts":  one([]int64{1, 1, -1, -1}, arc{0, 2, 9, 1}),
		"no limit": one([]int64{0, 0}, arc{0, 1, mincost.Unlimited, -1},
			arc{1, 0, mincost.Unlimited, 0}),
		"no limit at one node":     one([]int64{0}, arc{0, 0, mincost.Unlimited, -1}),
		"a negative capacity":      one([]int64{0, 0}, arc{0, 1, -1, 0}),
		"capacities that overflow": one([]int64{0, 0}, arc{0, 1, 1 << 60, 0}, arc{0, 1, 1 << 60, 0}),
		"a cost that overflows":    one([]int64{0, 0}, arc{0, 1, 1, math.MinInt64}),
		"costs that overflow":      one([]int64{0, 0}, arc{0, 1, 1, 1 << 59}, arc{1, 0, 1, 1 << 59}),
		"a supply that overflows":  one([]int64{math.MinInt64, math.MinInt64}, arc{0, 1, 1, 1}),
		"a total that overflows":   one([]int64{1 << 40, -1 << 40}, arc{0, 1, 1 << 40, 1 << 40}),
	} {
		s := mincost.NewSolver(g.network())
		for range 2 { // what is refused once is refused again
			if f, err := s.Solve(nil); err == nil {
				t.Errorf("%s: solved: %+v", name, f)
			}
		}
	}
	for name, make := range map[string]func(){
		"fewer nodes than none": func() { mincost.NewNetwork(-1) },
		"an arc from nowhere":   func() { mincost.NewNetwork(1).AddArc(1, 0, 1, 1) },
		"an arc to nowhere":     func() { mincost.NewNetwork(1).AddArc(0, -1, 1, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			make()
		}()
	}
}

// After it refused a network, a solver solves the network that it was changed to.
func TestSolveAfterErrors(t *testing.T) {
	g := &graph{supply: []int64{5, 0, -5}, arcs: []arc{{0, 1, 5, 2}, {1, 2, 3, 1}, {1, 0, mincost.Unlimited, 1}}}
	n := g.network()
	s := mincost.NewSolver(n)
	for _, step := range []struct {
		change func()
		want   error
	}{
		{func() {}, mincost.ErrInfeasible},
		{func() { n.SetCapacity(1, 5) }, nil},
		{func() { n.SetCapacity(0, mincost.Unlimited); n.SetCost(2, -3) }, mincost.ErrUnbounded},
		{func() { n.SetCost(2, 3) }, nil},
		{func() { n.SetSupply(0, 6) }, mincost.ErrInfeasible},
		{func() { n.SetSupply(0, 5) }, nil},
	} {
		step.change()
		f, err := s.Solve(nil)
		if !errors.Is(err, step.want) {
			t.Fatalf("%v, want %v", err, step.want)
		}
		if err == nil && (f.Cost != 15 || f.Certify(n) != nil) {
			t.Errorf("%+v: %v", f, f.Certify(n))
		}
	}
}

func TestSolveStops(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	n := crowd(r, 60, 60, 600, func() int64 { return r.Int64N(1000) }).network()
	want := solve(t, mincost.NewSolver(n), n).Cost
	s := mincost.NewSolver(n)
	stops, asked := 0, 0
	for {
		f, err := s.Solve(func() bool { asked++; return asked%3 == 0 })
		if errors.Is(err, mincost.ErrStopped) {
			stops++
			continue
		}
		if err != nil || f.Cost != want {
			t.Fatalf("%+v, %v: want a cost of %d", f, err, want)
		}
		break
	}
	if stops < 2 {
		t.Errorf("stopped %d times", stops)
	}
}

func TestSolveIsDeterministic(t *testing.T) {
	run := func() (flows [][]int64) {
		r := rand.New(rand.NewPCG(6, 7))
		n := crowd(r, 50, 50, 500, func() int64 { return r.Int64N(5) }).network()
		s := mincost.NewSolver(n)
		for range 5 {
			flows = append(flows, slices.Clone(solve(t, s, n).Units))
			for range 20 {
				n.SetCost(r.IntN(n.Arcs()), r.Int64N(5))
			}
		}
		return flows
	}
	if a, b := run(), run(); !slices.EqualFunc(a, b, slices.Equal[[]int64]) {
		t.Error("two runs differ")
	}
}

func TestCertifyFlowRefuses(t *testing.T) {
	g := &graph{supply: []int64{2, 0, -2}, arcs: []arc{{0, 1, 1, 1}, {0, 1, 2, 3}, {1, 2, 2, 0}, {0, 2, 5, 9}}}
	for name, spoil := range map[string]func(f *mincost.Flow, n *mincost.Network){
		"a unit less": func(f *mincost.Flow, _ *mincost.Network) { f.Units[0]-- },
		"a dearer way": func(f *mincost.Flow, _ *mincost.Network) {
			f.Units[1]--
			f.Units[2]--
			f.Units[3]++
			f.Cost += 6
		},
		"more than it can":  func(f *mincost.Flow, _ *mincost.Network) { f.Units[0]++; f.Units[1]--; f.Cost -= 2 },
		"less than nothing": func(f *mincost.Flow, _ *mincost.Network) { f.Units[0] = -1 },
		"another cost":      func(f *mincost.Flow, _ *mincost.Network) { f.Cost-- },
		"another price":     func(f *mincost.Flow, _ *mincost.Network) { f.Price[1] += 5 },
		"prices that wrap": func(f *mincost.Flow, _ *mincost.Network) {
			f.Price[0], f.Price[2] = math.MaxInt64, math.MinInt64
		},
		"a cheaper arc":       func(_ *mincost.Flow, n *mincost.Network) { n.SetCost(3, 1) },
		"an arc that is gone": func(_ *mincost.Flow, n *mincost.Network) { n.SetCapacity(0, 0) },
		"another supply":      func(_ *mincost.Flow, n *mincost.Network) { n.SetSupply(0, 1) },
		"another network":     func(_ *mincost.Flow, n *mincost.Network) { n.AddArc(0, 1, 1, 1) },
	} {
		n := g.network()
		f := solve(t, mincost.NewSolver(n), n)
		if f.Cost != 4 {
			t.Fatalf("%+v", f)
		}
		spoil(f, n)
		if f.Certify(n) == nil {
			t.Errorf("%s: certified", name)
		}
	}
}

// FuzzSolve makes networks of any numbers: they are refused, or solved and certified.
func FuzzSolve(f *testing.F) {
	f.Add([]byte("\x03\x01\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		nodes := 1 + int(data[0]%16)
		n, data := mincost.NewNetwork(nodes), data[1:]
		number := func() int64 {
			var b [8]byte
			data = data[copy(b[:], data):]
			return int64(binary.LittleEndian.Uint64(b[:])) >> (b[7] % 64)
		}
		s := mincost.NewSolver(n)
		for round := 0; round < 4 && len(data) > 0; round++ {
			for range 4 {
				n.AddArc(int(uint64(number())%uint64(nodes)), int(uint64(number())%uint64(nodes)), number(), number())
			}
			from, units := int(uint64(number())%uint64(nodes)), number()
			n.SetSupply(from, units)
			n.SetSupply((from+1)%nodes, -units)
			n.SetCost(int(uint64(number())%uint64(n.Arcs())), number())
			flow, err := s.Solve(nil)
			if err != nil {
				continue
			}
			if err := flow.Certify(n); err != nil {
				t.Fatalf("%v\n%+v\n%+v", err, n, flow)
			}
		}
	})
}

func BenchmarkSolve(b *testing.B) {
	for _, shape := range [][2]int{{100, 100}, {1000, 1000}, {24, 5000}} {
		r := rand.New(rand.NewPCG(1, 1))
		n := crowd(r, shape[0], shape[1], 10_000, func() int64 { return r.Int64N(1_000_000) }).network()
		b.Run(fmt.Sprint(shape[0], "x", shape[1]), func(b *testing.B) {
			for b.Loop() {
				if _, err := mincost.NewSolver(n).Solve(nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func ExampleSolver_Solve() {
	n := mincost.NewNetwork(4) // a source, two ways, and a sink
	n.SetSupply(0, 10)
	n.SetSupply(3, -10)
	cheap := n.AddArc(0, 1, 6, 1)
	n.AddArc(1, 3, mincost.Unlimited, 1)
	n.AddArc(0, 2, mincost.Unlimited, 2)
	n.AddArc(2, 3, mincost.Unlimited, 3)
	s := mincost.NewSolver(n)
	f, err := s.Solve(nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(f.Units, f.Cost, f.Certify(n))
	n.SetCapacity(cheap, 8)
	if f, err = s.Solve(nil); err != nil { // goes on from where it was
		panic(err)
	}
	fmt.Println(f.Units, f.Cost, f.Certify(n))
	// Output:
	// [6 6 4 4] 32 <nil>
	// [8 8 2 2] 26 <nil>
}

// Whatever wraps around to what it should be is no proof.
func TestCertifyRefusesWhatWraps(t *testing.T) {
	t.Run("units", func(t *testing.T) {
		n := mincost.NewNetwork(2)
		for range 4 {
			n.AddArc(0, 1, mincost.Unlimited, 0)
		}
		f := &mincost.Flow{Units: []int64{1 << 62, 1 << 62, 1 << 62, 1 << 62}, Price: make([]int64, 2)}
		if f.Certify(n) == nil {
			t.Error("certified: four times 2^62 units that nobody supplies")
		}
	})
	t.Run("many units", func(t *testing.T) {
		n := mincost.NewNetwork(2)
		f := &mincost.Flow{Price: make([]int64, 2)}
		for range 16 {
			n.AddArc(0, 1, mincost.Unlimited, 0)
			f.Units = append(f.Units, 1<<60)
		}
		if f.Certify(n) == nil {
			t.Error("certified: sixteen times 2^60 units that nobody supplies")
		}
	})
	t.Run("cost", func(t *testing.T) {
		g := &graph{supply: []int64{1, -1}, arcs: []arc{{0, 1, 1, 1}}}
		n := g.network()
		f := solve(t, mincost.NewSolver(n), n)
		n.SetCost(0, math.MinInt64)
		f.Cost = math.MinInt64
		if f.Certify(n) == nil {
			t.Error("certified: a cost beyond measure")
		}
	})
	t.Run("lots", func(t *testing.T) {
		transport := &mincost.Transport{Count: []int64{2}, Room: []int64{mincost.Unlimited}, Cost: []int64{0}}
		s, err := mincost.SolveTransport(transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Lots = []mincost.Lot{{Units: math.MaxInt64}, {Units: math.MaxInt64}, {Units: 4}}
		if s.Certify(transport) == nil {
			t.Error("certified: lots of more than there are")
		}
	})
}
