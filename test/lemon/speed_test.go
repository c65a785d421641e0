package lemon

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/mincost"
)

// rounds is how many instances of a kind are solved, each with A, B, A, B.
const rounds = 12

// A comparison holds the seconds of CPU time of A and B, by round, and how many times as fast as A B is.
type comparison struct {
	Name      string
	A, B      string // what they are
	SecondsA  []float64
	SecondsB  []float64
	Ratio     float64 // of all of A's seconds to all of B's
	Low, High float64 // 95 % interval by bootstrap over rounds
	Must      float64 `json:",omitempty"`
	Goal      float64 `json:",omitempty"`
}

// speeds runs and keeps comparisons.
type speeds struct {
	t     *testing.T
	lemon *reference
	all   []comparison
}

// TestSpeed compares, side by side, and keeps every time that was measured under out/. It takes minutes and a quiet
// machine.
func TestSpeed(t *testing.T) {
	if os.Getenv("KUBENERGY_BENCH") == "" {
		t.Skip("set KUBENERGY_BENCH to compare speeds: make bench-mincost")
	}
	s := &speeds{t: t, lemon: startReference(t)}
	s.raw("dense: 1,000 jobs, 1,000 nodes", func(r *rand.Rand) *instance {
		return placement(r, 1000, 1000, 0, 1_000_000)
	})
	s.raw("sparse: 10,000 jobs, 1,000 nodes, 20 choices", func(r *rand.Rand) *instance {
		return placement(r, 10_000, 1000, 20, 1_000_000)
	})
	s.raw("dense, nodes that all jobs like best", func(r *rand.Rand) *instance {
		return placement(r, 1000, 1000, 0, 1).byEnergy(r)
	})
	s.raw("sparse, nodes that all jobs like best", func(r *rand.Rand) *instance {
		return placement(r, 10_000, 1000, 20, 1).byEnergy(r)
	})
	s.shapes()
	s.pods()
	for _, change := range changes {
		s.again("dense, "+change.name, change, func(r *rand.Rand) *instance {
			return placement(r, 1000, 1000, 0, 1_000_000)
		})
		s.again("sparse, "+change.name, change, func(r *rand.Rand) *instance {
			return placement(r, 10_000, 1000, 20, 1_000_000)
		})
	}
	s.podsAgain()
	s.keep()
}

// compare times a and b alternately, and checks that what they return, a cost, is equal. Each returns its own seconds.
func (s *speeds) compare(c *comparison, a, b func() (cost int64, seconds float64)) {
	s.t.Helper()
	for range 2 {
		costA, secondsA := a()
		costB, secondsB := b()
		if costA != costB {
			s.t.Fatalf("%s: %s costs %d, %s %d", c.Name, c.A, costA, c.B, costB)
		}
		c.SecondsA, c.SecondsB = append(c.SecondsA, secondsA), append(c.SecondsB, secondsB)
	}
}

// finish adds a comparison up and says what came out.
func (s *speeds) finish(c comparison) {
	c.Ratio, c.Low, c.High = ratio(c.SecondsA, c.SecondsB)
	s.all = append(s.all, c)
	s.t.Logf("%-58s %s %8.2f ms, %s %7.2f ms: %6.2f times as fast (%.2f to %.2f)",
		c.Name, c.A, 1000*median(c.SecondsA), c.B, 1000*median(c.SecondsB), c.Ratio, c.Low, c.High)
	if c.Ratio < c.Must {
		s.t.Errorf("%s: %.2f times as fast, must be %.2f", c.Name, c.Ratio, c.Must)
	}
}

// solve has LEMON solve what was loaded. Building its solver is not counted.
func (s *speeds) solve() (int64, float64) {
	a, err := s.lemon.solve()
	if err != nil || a.status != "optimal" {
		s.t.Fatal(a.status, err)
	}
	return a.cost, a.run
}

// timed times a solve, without what the garbage of others costs, and has it certified afterwards.
func (s *speeds) timed(solve func() (cost int64, certify func() error)) (int64, float64) {
	runtime.GC()
	begin := s.cpu()
	cost, certify := solve()
	seconds := s.cpu() - begin
	if err := certify(); err != nil {
		s.t.Fatal(err)
	}
	return cost, seconds
}

// cpu returns the seconds of CPU time that this process has used, its garbage collector's with them.
func (s *speeds) cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		s.t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func (s *speeds) flow(n *mincost.Network, solver *mincost.Solver) (int64, func() error) {
	if solver == nil {
		solver = mincost.NewSolver(n)
	}
	f, err := solver.Solve(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return f.Cost, func() error { return f.Certify(n) }
}

func (s *speeds) shipment(t *mincost.Transport, solver *mincost.TransportSolver) (int64, func() error) {
	var shipment *mincost.Shipment
	var err error
	if solver == nil {
		shipment, err = mincost.SolveTransport(t, nil)
	} else {
		shipment, err = solver.Solve(t, nil)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return shipment.Cost, func() error { return shipment.Certify(t) }
}

func (s *speeds) load(i *instance) {
	if err := s.lemon.load(i, 2); err != nil {
		s.t.Fatal(err)
	}
}

// raw compares the two solvers on the same network.
func (s *speeds) raw(name string, draw func(r *rand.Rand) *instance) {
	c := comparison{Name: name, A: "LEMON", B: "mincost", Must: 0.5, Goal: 1}
	r := rand.New(rand.NewPCG(1, 1))
	for range rounds {
		i := draw(r)
		n := i.network()
		s.load(i)
		s.compare(&c, s.solve, func() (int64, float64) {
			return s.timed(func() (int64, func() error) { return s.flow(n, nil) })
		})
	}
	s.finish(c)
}

// shapes compares LEMON on the network of all jobs with a transport: with a row for each shape, and with a row for each
// job, whose costs are read and compared to find the shapes.
func (s *speeds) shapes() {
	stated := comparison{
		Name: "2,000 jobs of 24 shapes, 1,000 nodes: shapes stated", A: "LEMON, dense", B: "mincost", Must: 100,
	}
	found := comparison{
		Name: "2,000 jobs of 24 shapes, 1,000 nodes: shapes found", A: "LEMON, dense", B: "mincost", Goal: 100,
	}
	both := comparison{Name: "2,000 jobs of 24 shapes, 1,000 nodes: both aggregated", A: "LEMON", B: "mincost"}
	r := rand.New(rand.NewPCG(2, 2))
	for range rounds / 2 {
		i, jobs, counted := shapes(r, 2000, 24, 1000)
		ours := func(t *mincost.Transport) func() (int64, float64) {
			return func() (int64, float64) {
				return s.timed(func() (int64, func() error) { return s.shipment(t, nil) })
			}
		}
		s.load(i)
		s.compare(&stated, s.solve, ours(counted))
		s.load(i)
		s.compare(&found, s.solve, ours(jobs))
		s.load(aggregated(counted))
		s.compare(&both, s.solve, ours(counted))
	}
	s.finish(stated)
	s.finish(found)
	s.finish(both)
}

// mostPodsSeconds is how long 100,000 pods may take.
const mostPodsSeconds = 0.1

// pods compares on the aggregated problem, which both get.
func (s *speeds) pods() {
	c := comparison{Name: "100,000 pods of 24 shapes, 5,000 nodes: both aggregated", A: "LEMON", B: "mincost"}
	r := rand.New(rand.NewPCG(3, 3))
	for range rounds {
		t := pods(r, 100_000, 24, 5000)
		s.load(aggregated(t))
		s.compare(&c, s.solve, func() (int64, float64) {
			return s.timed(func() (int64, func() error) { return s.shipment(t, nil) })
		})
	}
	s.finish(c)
	if m := median(c.SecondsB); m > mostPodsSeconds {
		s.t.Errorf("%s: %.0f ms, must be below %.0f", c.Name, m*1000, mostPodsSeconds*1000)
	}
}

// again compares a solve from nothing with one that goes on from before a change.
func (s *speeds) again(name string, change change, draw func(r *rand.Rand) *instance) {
	c := comparison{Name: "again, " + name, A: "anew", B: "again", Goal: 20}
	r := rand.New(rand.NewPCG(4, 4))
	i := draw(r)
	n := i.network()
	solver := mincost.NewSolver(n)
	if _, err := solver.Solve(nil); err != nil {
		s.t.Fatal(err)
	}
	for range 2 * rounds {
		change.apply(r, i, n)
		again, secondsB := s.timed(func() (int64, func() error) { return s.flow(n, solver) })
		anew, secondsA := s.timed(func() (int64, func() error) { return s.flow(n, nil) })
		if anew != again {
			s.t.Fatalf("%s: %d again, %d anew", c.Name, again, anew)
		}
		c.SecondsA, c.SecondsB = append(c.SecondsA, secondsA), append(c.SecondsB, secondsB)
	}
	s.finish(c)
}

// podsAgain does the same with 100,000 pods, of which 1 % are exchanged and 1 % of the costs drift.
func (s *speeds) podsAgain() {
	c := comparison{
		Name: "again, 100,000 pods, 1 % of them exchanged, 1 % of costs drift", A: "anew", B: "again", Goal: 20,
	}
	r := rand.New(rand.NewPCG(5, 5))
	t := pods(r, 100_000, 24, 5000)
	var solver mincost.TransportSolver
	if _, err := solver.Solve(t, nil); err != nil {
		s.t.Fatal(err)
	}
	for range 2 * rounds {
		for range 1000 {
			from, to := r.IntN(24), r.IntN(24)
			t.Count[from]--
			t.Count[to]++
		}
		for range len(t.Cost) / 100 {
			cell := r.IntN(len(t.Cost))
			t.Cost[cell] += (t.Cost[cell]/50 + 1) * (r.Int64N(3) - 1)
		}
		again, secondsB := s.timed(func() (int64, func() error) { return s.shipment(t, &solver) })
		anew, secondsA := s.timed(func() (int64, func() error) { return s.shipment(t, nil) })
		if anew != again {
			s.t.Fatalf("%s: %d again, %d anew", c.Name, again, anew)
		}
		c.SecondsA, c.SecondsB = append(c.SecondsA, secondsA), append(c.SecondsB, secondsB)
	}
	s.finish(c)
}

// keep writes all that was measured.
func (s *speeds) keep() {
	raw, err := json.MarshalIndent(map[string]any{
		"go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "cores": runtime.NumCPU(),
		"comparisons": s.all,
	}, "", "\t")
	if err != nil {
		s.t.Fatal(err)
	}
	name := filepath.Join("..", "..", "out", "bench-mincost.json")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(name, append(raw, '\n'), 0o644); err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("all times are in out/bench-mincost.json")
}

// ratio returns the sum of a over that of b, with a 95 % interval from pairs that are drawn again.
func ratio(a, b []float64) (estimate, low, high float64) {
	r := rand.New(rand.NewPCG(95, uint64(len(a))))
	drawn := make([]float64, 5000)
	for i := range drawn {
		var sumA, sumB float64
		for range a {
			pair := r.IntN(len(a))
			sumA += a[pair]
			sumB += b[pair]
		}
		drawn[i] = sumA / sumB
	}
	slices.Sort(drawn)
	var sumA, sumB float64
	for i := range a {
		sumA += a[i]
		sumB += b[i]
	}
	return sumA / sumB, drawn[len(drawn)/40], drawn[len(drawn)-1-len(drawn)/40]
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// A change is what happens to a placement between two solves.
type change struct {
	name  string
	apply func(r *rand.Rand, i *instance, n *mincost.Network)
}

var changes = []change{
	{"1 % of jobs exchanged", func(r *rand.Rand, i *instance, n *mincost.Network) {
		jobs := i.jobs
		for range max(1, jobs/100) {
			// A job ends, and one that costs something else everywhere takes its place.
			job := r.IntN(jobs)
			for arc := job * i.choices; arc < (job+1)*i.choices; arc++ {
				n.SetCost(arc, r.Int64N(1_000_000))
			}
		}
	}},
	{"1 % of costs drift by 2 %", func(r *rand.Rand, i *instance, n *mincost.Network) {
		for range i.jobs * i.choices / 100 {
			arc := r.IntN(i.jobs * i.choices)
			i.cost[arc] += (i.cost[arc]/50 + 1) * (r.Int64N(3) - 1)
			n.SetCost(arc, i.cost[arc])
		}
	}},
	{"1 % of nodes get room for one more", func(r *rand.Rand, i *instance, n *mincost.Network) {
		first := i.jobs * i.choices
		for range (len(i.cost) - first) / 100 {
			arc := first + r.IntN(len(i.cost)-first)
			i.capacity[arc]++
			n.SetCapacity(arc, i.capacity[arc])
		}
	}},
	{"1 % of costs drawn anew", func(r *rand.Rand, i *instance, n *mincost.Network) {
		for range i.jobs * i.choices / 100 {
			n.SetCost(r.IntN(i.jobs*i.choices), r.Int64N(1_000_000))
		}
	}},
}
