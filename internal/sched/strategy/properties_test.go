package strategy_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// addPrices adds prices to every site, with different steps than the intensities.
func addPrices(t *rapid.T, s *sched.Snapshot) {
	for _, site := range s.Sites {
		series, err := grid.NewSeries(schedtest.Day.Add(-7*time.Minute), 20*time.Minute,
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
	strategy, err := strategy.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return strategy.Plan(s)
}

// TestPlanIsDeterministicAndOrderIndependent checks that the same snapshot results in the same plan for every order
// of nodes and jobs, and that the snapshot is not modified.
func TestPlanIsDeterministicAndOrderIndependent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := slices.Concat(schedtest.Strategies, strategy.Clusters())
		s, name := schedtest.DrawSnapshot(t, anyIntensity), rapid.SampledFrom(all).Draw(t, "strategy")
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
			t.Fatalf("%s: plan depends on the order of nodes or jobs (-listed +shuffled):\n%s", name, diff)
		}
		for i, n := range s.Nodes {
			if diff := cmp.Diff(before[i], *n, cmp.AllowUnexported(grid.Series{})); diff != "" {
				t.Fatalf("%s modified node %s of the snapshot:\n%s", name, n.Name, diff)
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

// TestNoJobIsHeldPastItsAllowedDelay checks that no job starts after its latest start, and that released jobs are
// not held.
func TestNoJobIsHeldPastItsAllowedDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, name := schedtest.DrawSnapshot(t, anyIntensity), rapid.SampledFrom(schedtest.Strategies).Draw(t, "strategy")
		s.Policy.MaxDelay = time.Duration(rapid.IntRange(0, 6*3600).Draw(t, "maxDelay")) * time.Second
		addPrices(t, s)
		for i := range s.Queue {
			s.Queue[i].Limits = schedtest.DrawLimits(t)
		}
		for i, d := range plan(t, name, s) {
			j := &s.Queue[i]
			if !d.Held(s.Now) {
				if !d.Window.Start.Equal(s.Now) {
					t.Fatalf("%s: job %s starts at %v, before now", name, j.ID, d.Window.Start)
				}
				continue
			}
			if d.Window.Start.After(j.LatestStart()) {
				t.Fatalf("%s: job %s is held until %v, after its latest start %v", name, j.ID, d.Window.Start,
					j.LatestStart())
			}
			if limit := j.Submitted.Add(s.Policy.MaxDelay); s.Policy.MaxDelay > 0 && d.Window.Start.After(limit) {
				t.Fatalf("%s: job %s is held until %v, after the policy's limit %v", name, j.ID, d.Window.Start, limit)
			}
			if j.Released || d.Node != "" && d.Reason.Kind != sched.PlannedLater {
				t.Fatalf("%s: job %s is held although released, or has a node while it is held: %+v", name, j.ID, d)
			}
		}
	})
}

// TestPlanRespectsCapacity checks that a batch never exceeds the free resources of a node.
func TestPlanRespectsCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, name := schedtest.DrawSnapshot(t, anyIntensity), rapid.SampledFrom(schedtest.Strategies).Draw(t, "strategy")
		if len(s.Queue) == 1 {
			s.Queue = append(s.Queue, s.Queue[0]) // with one job, the caller decides feasibility
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
				t.Fatalf("node %s is overcommitted: %+v free", name, left)
			}
		}
	})
}

// TestConstantIntensityShiftsNothing checks that no job is delayed under a constant intensity, despite rounding
// errors of integrals.
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
		s, name := schedtest.DrawSnapshot(t, constant), rapid.SampledFrom(schedtest.Strategies).Draw(t, "strategy")
		for i := range s.Queue {
			schedtest.DrawLife(t, s, &s.Queue[i])
		}
		for _, d := range plan(t, name, s) {
			// Joint plans also wait for capacity and for other jobs to finish.
			if d.Held(s.Now) && !sched.StartRules[strategy.When(name)].Together {
				t.Fatalf("%s: job %s is held until %v: %v", name, d.Job, d.Window.Start, d.Reason)
			}
		}
	})
}

// TestWindowIsTheCheapest compares the window rule with a search over every second.
func TestWindowIsTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 900), 20, 40).Draw(t, "intensity")
		series, err := grid.NewSeries(schedtest.Day, time.Minute, values)
		if err != nil {
			t.Fatal(err)
		}
		site := &sched.Site{Name: "s", Carbon: grid.Signal{Series: series}}
		now := schedtest.Day.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "now")) * time.Second)
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
			t.Fatalf("window at %v costs %v, but another window costs %v", d.Window.Start, got, least)
		}
	})
}

// TestPlanAgreesWithCosts checks that no other node has a lower cost than the selected one.
func TestPlanAgreesWithCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		s.Queue = s.Queue[:1]
		name := rapid.SampledFrom(schedtest.Strategies).Draw(t, "strategy")
		strategy, err := strategy.New(name)
		if err != nil {
			t.Fatal(err)
		}
		d := strategy.Plan(s)[0]
		costs, ok := strategy.Costs(s, &s.Queue[0], nil)
		if d.Held(s.Now) {
			return
		}
		if ok != (d.Node != "") {
			t.Fatalf("%s: plan selected %q, but Costs() returned ok = %v", name, d.Node, ok)
		}
		if !ok {
			return
		}
		chosen := slices.IndexFunc(s.Nodes, func(n *sched.Node) bool { return n.Name == d.Node })
		if costs[chosen] != slices.Min(costs) {
			t.Fatalf("%s: plan selected %s at a cost of %v among %v", name, d.Node, costs[chosen], costs)
		}
	})
}
