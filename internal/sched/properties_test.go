package sched_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

var strategies = func() (names []string) {
	wheres, whens := sched.Names()
	for _, where := range wheres {
		for _, when := range whens {
			names = append(names, where+"+"+when)
		}
	}
	return names
}()

// each has every where and every when once: neither looks at the other.
var each = func() (names []string) {
	wheres, whens := sched.Names()
	names = append(names, wheres...)
	for _, when := range whens {
		names = append(names, "energy+"+when)
	}
	return names
}()

// drawSnapshot draws a cluster of a few sites, heterogeneous nodes under load, and a queue with and without delays.
func drawSnapshot(t *rapid.T, intensity func(t *rapid.T, label string) []float64) *sched.Snapshot {
	s := &sched.Snapshot{Now: day.Add(time.Duration(rapid.IntRange(0, 12*3600).Draw(t, "now")) * time.Second)}
	for i := range rapid.IntRange(1, 3).Draw(t, "sites") {
		series, err := grid.NewSeries(day, 30*time.Minute, intensity(t, fmt.Sprint("intensity", i)))
		if err != nil {
			t.Fatal(err)
		}
		s.Sites = append(s.Sites, &sched.Site{
			Name: fmt.Sprint("site", i), PUE: rapid.Float64Range(1, 2).Draw(t, "pue"),
			Carbon: grid.Signal{Series: series},
		})
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		capacity := sched.Resources{
			MilliCPU: 1000 * rapid.Int64Range(1, 32).Draw(t, "cpu"),
			Memory:   rapid.Int64Range(1, 64).Draw(t, "memory") << 30,
		}
		used := sched.Resources{
			MilliCPU: rapid.Int64Range(0, capacity.MilliCPU).Draw(t, "usedCPU"),
			Memory:   rapid.Int64Range(0, capacity.Memory).Draw(t, "usedMemory"),
		}
		idle := rapid.Float64Range(10, 200).Draw(t, "idle")
		s.Nodes = append(s.Nodes, &sched.Node{
			Name: fmt.Sprint("node", i), Site: rapid.SampledFrom(s.Sites).Draw(t, "site"),
			Capacity: capacity, Free: capacity.Sub(used), Jobs: rapid.IntRange(0, 2).Draw(t, "jobs"),
			Speed:      rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "speed"),
			PUE:        rapid.SampledFrom([]float64{0, 1, 1.7}).Draw(t, "nodePUE"),
			Benchmarks: drawBenchmarks(t), HasLive: rapid.Bool().Draw(t, "hasLive"),
			Live:        energy.Watts(rapid.Float64Range(0, 500).Draw(t, "live")),
			Provisional: energy.Watts(rapid.Float64Range(0, 100).Draw(t, "provisional")),
			Profile: &energy.Profile{
				Idle: energy.Watts(idle), Max: energy.Watts(idle + rapid.Float64Range(0, 400).Draw(t, "dynamic")),
				Exponent: rapid.SampledFrom([]float64{0, 0.7, 1, 1.4, 3}).Draw(t, "exponent"),
				Sleep:    energy.Watts(idle * rapid.Float64Range(0, 1).Draw(t, "sleep")),
			},
		})
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "queue") {
		j := sched.Job{
			ID:           fmt.Sprint("job", i),
			Submitted:    s.Now.Add(-time.Duration(rapid.IntRange(0, 3600).Draw(t, "age")) * time.Second),
			Duration:     time.Duration(rapid.IntRange(1, 6*3600).Draw(t, "duration")) * time.Second,
			AllowedDelay: time.Duration(rapid.IntRange(0, 12*3600).Draw(t, "delay")) * time.Second,
			Request: sched.Resources{
				MilliCPU: rapid.Int64Range(0, 16000).Draw(t, "requestCPU"),
				Memory:   rapid.Int64Range(0, 16).Draw(t, "requestMemory") << 30,
			},
			Released: rapid.Bool().Draw(t, "released"),
			Class:    rapid.SampledFrom([]string{"", "training"}).Draw(t, "class"),
			PUE:      rapid.SampledFrom([]float64{0, 1.1}).Draw(t, "jobPUE"),

			PerformanceWeight:    rapid.Float64Range(0, 1).Draw(t, "weight"),
			HasPerformanceWeight: rapid.Bool().Draw(t, "hasWeight"),
			Expected:             energy.Watts(rapid.Float64Range(0, 50).Draw(t, "expected")),
			HasExpected:          rapid.Bool().Draw(t, "hasExpected"),
		}
		if rapid.Bool().Draw(t, "hasFinishBy") {
			j.FinishBy = s.Now.Add(time.Duration(rapid.IntRange(-3600, 12*3600).Draw(t, "finishBy")) * time.Second)
		}
		if rapid.Bool().Draw(t, "bound") {
			j.Sites = []string{rapid.SampledFrom(s.Sites).Draw(t, "boundTo").Name}
		}
		s.Queue = append(s.Queue, j)
	}
	s.Policy.Seed = rapid.Uint64Range(0, 3).Draw(t, "seed")
	return s
}

func drawBenchmarks(t *rapid.T) map[string]energy.Benchmark {
	if rapid.Bool().Draw(t, "notMeasured") {
		return nil
	}
	return map[string]energy.Benchmark{"training": {
		Rate:  rapid.Float64Range(1e-3, 1e3).Draw(t, "rate"),
		Power: energy.Watts(rapid.Float64Range(0, 500).Draw(t, "loaded")),
		Idle:  energy.Watts(rapid.Float64Range(0, 300).Draw(t, "benchmarkIdle")),
	}}
}

// drawLife draws what is known of how long a job runs, and how far it is.
func drawLife(t *rapid.T, s *sched.Snapshot, j *sched.Job) {
	j.Interruptible = rapid.Bool().Draw(t, "interruptible")
	j.RestartCost = time.Duration(rapid.IntRange(0, 3).Draw(t, "restartMinutes")) * 5 * time.Minute
	if rapid.Bool().Draw(t, "begun") {
		j.Done = time.Duration(rapid.Int64Range(0, int64(s.Now.Sub(j.Submitted))).Draw(t, "done"))
		if rapid.Bool().Draw(t, "otherSpeed") {
			j.Worked = time.Duration(rapid.Int64Range(0, int64(s.Now.Sub(j.Submitted))).Draw(t, "worked"))
		}
		j.Running = rapid.Bool().Draw(t, "running")
	}
	if rapid.Bool().Draw(t, "lengthKnown") {
		return
	}
	survival := []float64{1}
	for range rapid.IntRange(1, 8).Draw(t, "lives") {
		survival = append(survival, survival[len(survival)-1]*float64(rapid.IntRange(0, 16).Draw(t, "share"))/16)
	}
	step := time.Duration(rapid.IntRange(1, 300).Draw(t, "lifeMinutes")) * time.Minute
	var err error
	if j.Runtimes, err = sched.NewRuntimes(step, survival); err != nil {
		t.Fatal(err)
	}
	j.Duration = j.Runtimes.Mean()
}

// drawLimits draws limits of every kind, in the range of what drawn signals do.
func drawLimits(t *rapid.T) sched.Limits {
	l := sched.Limits{NoCarbon: rapid.Bool().Draw(t, "noCarbon")}
	if rapid.Bool().Draw(t, "limitCarbon") {
		l.Carbon = grid.Intensity(rapid.Float64Range(1, 900).Draw(t, "maxCarbon"))
	}
	if rapid.Bool().Draw(t, "limitShare") {
		l.Percentile = rapid.Float64Range(0.01, 0.99).Draw(t, "percentile")
	}
	if l.HasPrice = rapid.Bool().Draw(t, "limitPrice"); l.HasPrice {
		l.Price = grid.Price(rapid.Float64Range(-0.1, 0.5).Draw(t, "maxPrice"))
	}
	return l
}

// addPrices gives every site prices, whose steps are not those of the intensities.
func addPrices(t *rapid.T, s *sched.Snapshot) {
	for _, site := range s.Sites {
		series, err := grid.NewSeries(day.Add(-7*time.Minute), 20*time.Minute,
			rapid.SliceOfN(rapid.Float64Range(-0.2, 0.6), 1, 90).Draw(t, "prices"))
		if err != nil {
			t.Fatal(err)
		}
		site.Price = grid.Signal{Series: series}
	}
}

func anyIntensity(t *rapid.T, label string) []float64 {
	return rapid.SliceOfN(rapid.Float64Range(0, 900), 1, 60).Draw(t, label)
}

func plan(t rapid.TB, name string, s *sched.Snapshot) sched.Plan {
	strategy, err := sched.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return strategy.Plan(s)
}

// The same snapshot gives the same plan, in whatever order nodes and jobs are listed, and is left as it was.
func TestPlanIsDeterministicAndOrderIndependent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := slices.Concat(strategies, sched.Clusters())
		s, name := drawSnapshot(t, anyIntensity), rapid.SampledFrom(all).Draw(t, "strategy")
		var before []sched.Node
		for _, n := range s.Nodes {
			before = append(before, *n)
		}
		want := plan(t, name, s)

		shuffled := *s
		shuffled.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodeOrder")
		shuffled.Queue = rapid.Permutation(s.Queue).Draw(t, "queueOrder")
		got := plan(t, name, &shuffled)
		slices.SortFunc(got, func(a, b sched.Decision) int { return cmpStrings(a.Job, b.Job) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: another order gives another plan (-listed +shuffled):\n%s", name, diff)
		}
		for i, n := range s.Nodes {
			if diff := cmp.Diff(before[i], *n, cmp.AllowUnexported(grid.Series{})); diff != "" {
				t.Fatalf("%s changed node %s of the snapshot:\n%s", name, n.Name, diff)
			}
		}
	})
}

func cmpStrings(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

// No decision starts a job after its latest start, or holds one that was released.
func TestNoJobIsHeldPastItsAllowedDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, name := drawSnapshot(t, anyIntensity), rapid.SampledFrom(strategies).Draw(t, "strategy")
		s.Policy.MaxDelay = time.Duration(rapid.IntRange(0, 6*3600).Draw(t, "maxDelay")) * time.Second
		addPrices(t, s)
		for i := range s.Queue {
			s.Queue[i].Limits = drawLimits(t)
		}
		for i, d := range plan(t, name, s) {
			j := &s.Queue[i]
			if !d.Held(s.Now) {
				if !d.Window.Start.Equal(s.Now) {
					t.Fatalf("%s: %s starts at %v, before now", name, j.ID, d.Window.Start)
				}
				continue
			}
			if d.Window.Start.After(j.LatestStart()) {
				t.Fatalf("%s: %s is held until %v, after its latest start %v", name, j.ID, d.Window.Start,
					j.LatestStart())
			}
			if limit := j.Submitted.Add(s.Policy.MaxDelay); s.Policy.MaxDelay > 0 && d.Window.Start.After(limit) {
				t.Fatalf("%s: %s is held until %v, after the policy's limit %v", name, j.ID, d.Window.Start, limit)
			}
			if j.Released || d.Node != "" && d.Reason.Kind != sched.PlannedLater {
				t.Fatalf("%s: %s is held although released, or has a node while held: %+v", name, j.ID, d)
			}
		}
	})
}

// A batch never takes more of a node than is free.
func TestPlanRespectsCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, name := drawSnapshot(t, anyIntensity), rapid.SampledFrom(strategies).Draw(t, "strategy")
		if len(s.Queue) == 1 {
			s.Queue = append(s.Queue, s.Queue[0]) // with one job, feasibility is the caller's business
			s.Queue[1].ID = "job1"
		}
		free := map[string]sched.Resources{}
		for _, n := range s.Nodes {
			free[n.Name] = n.Free
		}
		for i, d := range plan(t, name, s) {
			if d.Node != "" {
				free[d.Node] = free[d.Node].Sub(s.Queue[i].Request)
			}
		}
		for name, left := range free {
			if !(sched.Resources{}).Within(left) {
				t.Fatalf("node %s is overcommitted: %+v left", name, left)
			}
		}
	})
}

// Where the intensity never changes, waiting saves nothing, whatever the last digits of the integrals say.
func TestConstantIntensityShiftsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		constant := func(t *rapid.T, label string) []float64 {
			values := make([]float64, rapid.IntRange(1, 200).Draw(t, label+"Len"))
			v := rapid.Float64Range(0, 900).Draw(t, label)
			for i := range values {
				values[i] = v
			}
			return values
		}
		s, name := drawSnapshot(t, constant), rapid.SampledFrom(strategies).Draw(t, "strategy")
		for i := range s.Queue {
			drawLife(t, s, &s.Queue[i])
		}
		for _, d := range plan(t, name, s) {
			// A plan also waits for room, and for what runs beside to end.
			if d.Held(s.Now) && sched.When(name) != "plan" {
				t.Fatalf("%s: %s is held until %v: %v", name, d.Job, d.Window.Start, d.Reason)
			}
		}
	})
}

// The window rule finds what trying every second would find.
func TestWindowIsTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 900), 20, 40).Draw(t, "intensity")
		series, err := grid.NewSeries(day, time.Minute, values)
		if err != nil {
			t.Fatal(err)
		}
		site := &sched.Site{Name: "s", Carbon: grid.Signal{Series: series}}
		now := day.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "now")) * time.Second)
		job := sched.Job{
			ID: "j", Submitted: now, Request: sched.Resources{MilliCPU: 1000},
			Duration:     time.Duration(rapid.IntRange(1, 600).Draw(t, "duration")) * time.Second,
			AllowedDelay: time.Duration(rapid.IntRange(1, 900).Draw(t, "delay")) * time.Second,
		}
		d := plan(t, "energy+window", &sched.Snapshot{Now: now, Queue: []sched.Job{job}, Sites: []*sched.Site{site}})[0]
		least := math.Inf(1)
		for start := now; !start.After(job.LatestStart()); start = start.Add(time.Second) {
			if end := start.Add(job.Duration); series.Covers(start, end) {
				least = min(least, series.Integral(start, end))
			}
		}
		got := series.Integral(d.Window.Start, d.Window.Start.Add(job.Duration))
		if got > least*(1+1e-6)+1e-6 {
			t.Fatalf("window at %v costs %v, another one costs %v", d.Window.Start, got, least)
		}
	})
}

// A job that must wait for nothing, on the cheapest of all nodes: no other node may cost less.
func TestPlanAgreesWithCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSnapshot(t, anyIntensity)
		s.Queue = s.Queue[:1]
		name := rapid.SampledFrom(strategies).Draw(t, "strategy")
		strategy, err := sched.New(name)
		if err != nil {
			t.Fatal(err)
		}
		d := strategy.Plan(s)[0]
		costs, ok := strategy.Costs(s, &s.Queue[0], nil)
		if d.Held(s.Now) {
			return
		}
		if ok != (d.Node != "") {
			t.Fatalf("%s: plan chose %q, but costs are known: %v", name, d.Node, ok)
		}
		if !ok {
			return
		}
		chosen := slices.IndexFunc(s.Nodes, func(n *sched.Node) bool { return n.Name == d.Node })
		if costs[chosen] != slices.Min(costs) {
			t.Fatalf("%s: plan chose %s at cost %v of %v", name, d.Node, costs[chosen], costs)
		}
	})
}
