package oracle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
)

// scenarioOn returns a scenario with jobs on one node with enough cores for all, which draws one watt per busy
// core.
func scenarioOn(c *grid.Series, jobs []sched.Job) *sim.Scenario {
	site := &sched.Site{Name: "site", Zone: "DE", PUE: 1.2, Carbon: grid.Signal{Series: c}}
	const cores = 100_000
	capacity := sched.Resources{MilliCPU: 1000 * cores, Memory: 1 << 50}
	return &sim.Scenario{
		Start: start, Sites: []*sched.Site{site}, Jobs: jobs,
		Nodes: []sched.Node{{
			Name: "all", Site: site, Capacity: capacity, Free: capacity, Profile: &energy.Profile{Max: cores},
		}},
	}
}

// drawScenario returns up to a dozen random jobs with delays of up to 30 hours, on an intensity of ten days.
func drawScenario(t *rapid.T) *sim.Scenario {
	step := rapid.SampledFrom([]time.Duration{30 * minute, time.Hour}).Draw(t, "step")
	pattern := rapid.SliceOfN(rapid.Float64Range(0, 900), 3, 60).Draw(t, "intensity")
	values := make([]float64, 10*24*time.Hour/step)
	for i := range values {
		values[i] = pattern[i%len(pattern)]
	}
	c, err := grid.NewSeries(start, step, values)
	if err != nil {
		t.Fatal(err)
	}
	return scenarioOn(c, drawJobs(t))
}

func drawJobs(t *rapid.T) []sched.Job {
	jobs := make([]sched.Job, rapid.IntRange(1, 12).Draw(t, "jobs"))
	for i := range jobs {
		jobs[i] = sched.Job{
			ID:            fmt.Sprint("job", i),
			Submitted:     start.Add(time.Duration(rapid.IntRange(0, 48*3600).Draw(t, "submitted")) * time.Second),
			Duration:      time.Duration(rapid.IntRange(1, 30*3600).Draw(t, "duration")) * time.Second,
			AllowedDelay:  time.Duration(rapid.IntRange(0, 30*3600).Draw(t, "delay")) * time.Second,
			Request:       sched.Resources{MilliCPU: rapid.Int64Range(1, 20_000).Draw(t, "cpu")},
			Interruptible: rapid.Bool().Draw(t, "interruptible"),
			Limits:        sched.Limits{Carbon: grid.Intensity(rapid.IntRange(0, 500).Draw(t, "limit"))},
			Queue:         rapid.SampledFrom([]string{"", "short", "long"}).Draw(t, "queue"),
		}
	}
	return jobs
}

func runPolicy(t rapid.TB, s *sim.Scenario, name string) *sim.Result {
	strategy, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), s, name, strategy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// drawWhens returns a random subset of the start policies, which are the relevant ones on one node, or all of them
// in long tests.
func drawWhens(t *rapid.T) []string {
	_, names := strategy.Names()
	if os.Getenv("KUBENERGY_LONG") != "" {
		return names
	}
	const some = 3
	return rapid.Permutation(names).Draw(t, "whens")[:min(some, len(names))]
}

// familyOf returns the family of a policy.
func familyOf(t *rapid.T, name string) oracle.Family {
	strategy, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := any(strategy).(interface{ Interrupts() bool }); ok && s.Interrupts() {
		return oracle.FamilyInterruptible
	}
	return oracle.FamilyNonPreemptive
}

// dim is a forecast without knowledge of the future: the current value remains constant.
type dim struct{ truth *grid.Series }

// At implements [sim.Foresight].
func (d dim) At(now time.Time) grid.Signal {
	series, err := grid.NewSeries(now.Truncate(d.truth.Step()), d.truth.Step(),
		slices.Repeat([]float64{d.truth.At(now)}, 96))
	if err != nil {
		panic(err) // the true series contains only finite values
	}
	return grid.Signal{Series: series, AsOf: now}
}

// drawIgnorance randomly removes the knowledge of the future and of run times from a scenario.
func drawIgnorance(t *rapid.T, s *sim.Scenario) {
	if rapid.Bool().Draw(t, "withoutForecasts") {
		s.Foresight = []sim.Foresight{dim{s.Sites[0].Carbon.Series}}
	}
	switch rapid.SampledFrom([]string{"known", "survival", "mean"}).Draw(t, "lengths") {
	case "survival":
		s.Learner = func() predict.Learner { return predict.NewSurvival() }
	case "mean":
		s.Learner = func() predict.Learner { return predict.NewMean() }
	}
}

// No policy is better than the optimum of its family, regardless of its knowledge, and the optimum without
// interruptions is never better than the one with interruptions.
func TestNoPolicyBeatsItsOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		least := map[oracle.Family]energy.Grams{}
		for _, f := range []oracle.Family{oracle.FamilyNonPreemptive, oracle.FamilyInterruptible} {
			grams, err := oracle.Least(s, f)
			if err != nil {
				t.Fatal(err)
			}
			least[f] = grams
		}
		once, suspended := float64(least[oracle.FamilyNonPreemptive]), float64(least[oracle.FamilyInterruptible])
		if suspended > once && !near(suspended, once) {
			t.Fatalf("minimum emissions with suspending = %v, above %v without", suspended, once)
		}
		drawIgnorance(t, s)
		for _, when := range drawWhens(t) {
			name := "carbon+" + when
			got, bound := float64(runPolicy(t, s, name).Carbon), float64(least[familyOf(t, name)])
			if got < bound && !near(got, bound) {
				t.Fatalf("emissions of %s = %v, below the minimum of its family %v", name, got, bound)
			}
		}
	})
}

// The start policy "window" has the same knowledge as the oracle if run times are known.
func TestWindowOnPerfectSignalsIsTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		least, err := oracle.Least(s, oracle.FamilyNonPreemptive)
		if err != nil {
			t.Fatal(err)
		}
		if got := runPolicy(t, s, "carbon+window").Carbon; !near(float64(got), float64(least)) {
			t.Fatalf("emissions of window = %v, want %v of the oracle", got, least)
		}
	})
}

// Without any choice there are no savings, neither for policies nor for the oracle.
func TestNothingIsSavedWithoutAChoice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		if rapid.Bool().Draw(t, "constant") {
			c, err := grid.Constant(start, 20*24*time.Hour, rapid.Float64Range(0, 900).Draw(t, "value"))
			if err != nil {
				t.Fatal(err)
			}
			s = scenarioOn(c, s.Jobs)
		} else {
			for i := range s.Jobs {
				s.Jobs[i].AllowedDelay = 0
			}
		}
		want := float64(runPolicy(t, s, "carbon").Carbon)
		for _, when := range drawWhens(t) {
			if got := float64(runPolicy(t, s, "carbon+"+when).Carbon); !near(got, want) {
				t.Fatalf("emissions of %s = %v, want %v of an immediate start", when, got, want)
			}
		}
		for _, f := range []oracle.Family{oracle.FamilyNonPreemptive, oracle.FamilyInterruptible} {
			if got, err := oracle.Least(s, f); err != nil || !near(float64(got), want) {
				t.Fatalf("Least() = %v, error %v, want %v of an immediate start", got, err, want)
			}
		}
	})
}

// A throttled strategy belongs to the family of the underlying strategy, and exceeds its quota only for jobs that
// must start.
func TestCapNeitherBeatsTheOracleNorDelaysTooLong(t *testing.T) {
	throttled := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t)
		least, err := oracle.Least(s, oracle.FamilyNonPreemptive)
		if err != nil {
			t.Fatal(err)
		}
		strategy, err := strategy.ByName("cap(2-30):carbon+now")
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Run(context.Background(), s, "cap", strategy)
		if err != nil {
			t.Fatal(err)
		}
		if float64(r.Carbon) < float64(least) && !near(float64(r.Carbon), float64(least)) {
			t.Fatalf("emissions = %v, below the minimum %v", r.Carbon, least)
		}
		for i := range r.Outcomes {
			o, j := &r.Outcomes[i], &s.Jobs[i]
			if o.Start.After(j.LatestStart()) || o.Start.Before(j.Submitted) {
				t.Fatalf("job %d, submitted at %v, starts at %v, want at most %v", i, j.Submitted, o.Start,
					j.LatestStart())
			}
			if !o.Start.After(j.Submitted) {
				continue
			}
			throttled++
			if o.Start.Before(j.LatestStart()) && coresAt(s, r, o.Start) > 30_000 {
				t.Fatalf("at the early start of job %d, %d millicores are in use, above the quota", i, coresAt(s, r, o.Start))
			}
		}
	})
	if throttled < 20 {
		t.Errorf("only %d jobs were throttled, want at least 20", throttled)
	}
}

// coresAt returns the millicores in use at the given time, including jobs that start then.
func coresAt(s *sim.Scenario, r *sim.Result, at time.Time) (used int64) {
	for i := range r.Outcomes {
		if o := &r.Outcomes[i]; !o.Start.After(at) && o.Finish.After(at) &&
			(o.Start.Before(at) || at.Before(s.Jobs[i].LatestStart())) {
			used += s.Jobs[i].Request.MilliCPU
		}
	}
	return used
}

// If the sum over jobs is not the optimum, Least returns an error with the reason.
func TestMinRefusesWhatItDoesNotKnow(t *testing.T) {
	c, err := grid.NewSeries(start, time.Hour, []float64{300, 200, 100, 200, 300, 300})
	if err != nil {
		t.Fatal(err)
	}
	make2 := func() *sim.Scenario {
		return scenarioOn(c, []sched.Job{
			{
				ID: "a", Submitted: start, Duration: time.Hour, AllowedDelay: 2 * time.Hour,
				Request: sched.Resources{MilliCPU: 60_000_000},
			},
			{
				ID: "b", Submitted: start.Add(3 * time.Hour), Duration: time.Hour,
				Request: sched.Resources{MilliCPU: 60_000_000},
			},
		})
	}
	if got, err := oracle.Least(make2(), oracle.FamilyNonPreemptive); err != nil ||
		!near(float64(got), 1.2*60*(100+200)) {
		t.Errorf("Least() of two consecutive jobs = %v, %v, want %v", got, err, 1.2*60*(100+200))
	}
	for name, change := range map[string]func(*sim.Scenario){
		"in each other's way": func(s *sim.Scenario) { s.Jobs[1].Submitted = start.Add(2 * time.Hour) },
		"idle power":          func(s *sim.Scenario) { s.Nodes[0].Profile = &energy.Profile{Idle: 10, Max: 100_000} },
		"a bend": func(s *sim.Scenario) {
			s.Nodes[0].Profile = &energy.Profile{Max: 100_000, Exponent: 1.4}
		},
		"two sites": func(s *sim.Scenario) { s.Sites = append(s.Sites, s.Sites[0]) },
		"nodes that differ": func(s *sim.Scenario) {
			n := s.Nodes[0]
			n.Name, n.Speed = "fast", 2
			s.Nodes = append(s.Nodes, n)
		},
		"no intensity":  func(s *sim.Scenario) { s.Sites[0].Carbon = grid.Signal{} },
		"another node":  func(s *sim.Scenario) { s.Jobs[0].Selector = map[string]string{"gpu": "yes"} },
		"many of small": func(s *sim.Scenario) { s.Jobs = slices.Repeat(s.Jobs, 2) },
	} {
		s := make2()
		change(s)
		if got, err := oracle.Least(s, oracle.FamilyNonPreemptive); !errors.Is(err, oracle.ErrNotExact) {
			t.Errorf("%s: Least() = %v, %v, want ErrNotExact", name, got, err)
		}
	}
	// Interruptible jobs share the cores of the cheapest hour available to both.
	s := make2()
	s.Jobs[1].Submitted, s.Jobs[1].AllowedDelay = start.Add(2*time.Hour), time.Hour
	for i := range s.Jobs {
		s.Jobs[i].Interruptible = true
	}
	if got, err := oracle.Least(s, oracle.FamilyInterruptible); err != nil ||
		!near(float64(got), 1.2*(100*100+20*200)) {
		t.Errorf("Least() of two competing jobs = %v, %v, want %v", got, err, 1.2*(100*100+20*200))
	}
}
