package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

var t0 = time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return t0.Add(time.Duration(minutes) * time.Minute) }

// scenario returns 20 jobs of 10 minutes, submitted at intervals of a minute. Each may be delayed by half an hour.
// Two nodes have 8 cores.
func scenario(t testing.TB, priced bool) *sim.Scenario {
	t.Helper()
	series, err := grid.NewSeries(t0, time.Hour, []float64{400, 200, 100})
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{
		Name: "home", Zone: "DE", PUE: 1.25, Carbon: grid.Signal{Series: series, Quality: energy.Derived},
	}
	if priced {
		site.Price = grid.Signal{Series: series}
	}
	s := &sim.Scenario{Name: "half an hour", Start: t0, Sites: []*sched.Site{site}, Policy: sched.Policy{Seed: 7}}
	profile := &energy.Profile{Name: "p", Idle: 50, Max: 150}
	for i := range 2 {
		capacity := sched.Resources{MilliCPU: 4000}
		s.Nodes = append(s.Nodes, sched.Node{
			Name: fmt.Sprint("node-", i), Site: site, Capacity: capacity, Free: capacity, Profile: profile,
		})
	}
	for i := range 20 {
		s.Jobs = append(s.Jobs, sched.Job{
			ID: fmt.Sprint("job-", i), Submitted: at(i), Duration: 10 * time.Minute, AllowedDelay: 30 * time.Minute,
			Request: sched.Resources{MilliCPU: 1000},
		})
	}
	return s
}

// result returns a run that delays every job by putOff minutes. The delay counts as a hold if held is true.
func result(s *sim.Scenario, name string, putOff int, held bool) *sim.Result {
	r := &sim.Result{
		Strategy: name, Scenario: s, Outcomes: make([]sim.Outcome, len(s.Jobs)),
		Totals: sim.Totals{Energy: energy.Joules(2 * energy.JoulesPerKWh), Carbon: 800, Cost: 0.5},
		End:    at(60), Accounted: at(90), BusyCPU: 4 * 3600, Decisions: 40, Elapsed: 20 * time.Millisecond,
	}
	for k := range 9 {
		r.Timeline = append(r.Timeline, sim.Sample{
			Time: at(10 * k), Power: energy.Watts(100 + 10*k), Intensity: 400, Running: k,
		})
	}
	for i := range r.Outcomes {
		start := s.Jobs[i].Submitted.Add(time.Duration(putOff) * time.Minute)
		o := sim.Outcome{Job: i, Released: start, Start: start, Finish: start.Add(s.Jobs[i].Duration)}
		if !held {
			o.Released = s.Jobs[i].Submitted
		} else {
			o.Hold = &sched.Decision{Window: sched.Window{Start: start}, Reason: sched.Reason{Kind: sched.CheaperLater}}
		}
		o.Placed = sim.Placed{
			Node: "node-0", Reason: sched.Cheapest,
			Cost: sched.Estimate{Energy: 1234, Carbon: 0.5},
		}
		r.Outcomes[i] = o
	}
	return r
}

// figures returns the figures of a single run.
func figures(r *sim.Result) report.Run { return report.New(&sim.File{}, []*sim.Result{r}).Runs[0] }

func TestRunFigures(t *testing.T) {
	r := result(scenario(t, true), "carbon+window", 10, true)
	// Two of the twenty jobs are special. One finds no capacity for another hour after its release, and one is
	// never placed.
	r.Outcomes[3].Start, r.Outcomes[3].Finish = r.Outcomes[3].Start.Add(time.Hour), r.Outcomes[3].Finish.Add(time.Hour)
	r.Outcomes[4] = sim.Outcome{Job: 4, Released: at(4)}
	want := report.Run{
		Strategy: "carbon+window", EmptyNodes: "sleep", Sleep: &report.Sleep{}, Jobs: 20, EnergyKWh: 2, EmissionsKg: 0.8, Cost: 0.5, Priced: true,
		MeanWaitSeconds:       (18*600 + 4200) / 19.,
		P95WaitSeconds:        4200, // the 19th of 19 jobs
		MeanCompletionSeconds: (18*1200 + 4800) / 19., MeanBoundedSlowdown: (18*2 + 8) / 19.,
		MakespanSeconds: 3600, Utilisation: 0.5, HeldJobs: 19, MeanHoldSeconds: 600, UnplacedJobs: 1,
		LateStarts: 1,
		Decisions:  40, DecisionsPerSecond: 2000, Quality: energy.Estimated,
	}
	if diff := cmp.Diff(want, figures(r), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDelayViolations(t *testing.T) {
	s := scenario(t, false)
	for _, c := range []struct {
		name   string
		putOff int
		held   bool
		slack  time.Duration
		want   int
	}{
		{"within the allowed delay", 30, true, 0, 0},
		{"held a minute too long", 31, true, 0, 20},
		{"a minute, as the observer is as slow", 31, true, time.Minute, 0},
		{"room was lacking, nothing held them", 31, false, 0, 0},
	} {
		s.Slack = c.slack
		if got := figures(result(s, "x", c.putOff, c.held)).DelayViolations; got != c.want {
			t.Errorf("%s: got %d violations, want %d", c.name, got, c.want)
		}
	}
	// A job that was released in time and then found no capacity does not count as a violation.
	late := result(s, "x", 30, true)
	for i := range late.Outcomes {
		late.Outcomes[i].Start = late.Outcomes[i].Start.Add(time.Hour)
	}
	if got := figures(late).DelayViolations; got != 0 {
		t.Errorf("got %d violations by jobs that were released in time", got)
	}
}

func TestP95IsTheNearestRank(t *testing.T) {
	r := result(scenario(t, false), "x", 0, false)
	for i := range r.Outcomes {
		r.Outcomes[i].Start = r.Scenario.Jobs[i].Submitted.Add(time.Duration(i+1) * time.Minute)
	}
	if got := figures(r).P95WaitSeconds; got != 19*60 {
		t.Errorf("the 95th percentile of 1 to 20 min is %v s, want 19 min", got)
	}
}

func TestSavings(t *testing.T) {
	s := scenario(t, true)
	base, better := result(s, "stock", 0, false), result(s, "carbon", 0, false)
	better.Energy, better.Carbon, better.Cost = base.Energy/2, base.Carbon/4, base.Cost*2
	r := report.New(&sim.File{}, []*sim.Result{base, better})
	want := report.Savings{Energy: 0.5, Emissions: 0.75, Cost: -1}
	if diff := cmp.Diff(want, r.Runs[1].Savings, cmpopts.EquateApprox(0, 1e-12)); diff != "" || r.Baseline != "stock" {
		t.Errorf("baseline %q, (-want +got)\n%s", r.Baseline, diff)
	}
	if diff := cmp.Diff(report.Savings{}, r.Runs[0].Savings); diff != "" {
		t.Errorf("the baseline has savings relative to itself: %s", diff)
	}
	// With negative prices, lower revenue is not a saving.
	base.Cost, better.Cost = -2, -1
	if got := report.New(&sim.File{}, []*sim.Result{base, better}).Runs[1].Savings.Cost; got != -0.5 {
		t.Errorf("with negative prices, half the revenue is a saving of %v, want -0.5", got)
	}
}

// Strategies with the same node and start of every job in all states of machines are listed.
func TestAlikeStrategies(t *testing.T) {
	s := scenario(t, false)
	run := func(name string, putOff int) *sim.Result { return result(s, name, putOff, true) }
	moved := run("moved", 5)
	moved.Outcomes[7].Placed.Node = "node-1"
	results := []*sim.Result{
		run("stock", 0), run("a", 5), moved, run("b", 5), run("none", 0), run("mixed", 5),
		run("stock", 0), run("a", 5), run("moved", 5), run("b", 5), run("none", 0), run("mixed", 6), run("best", 0),
	}
	notes := strings.Join(report.New(&sim.File{}, results).Scenario.Notes, "\n")
	const want = "These strategies chose the same node and start for every job: stock and none; a and b."
	if !strings.Contains(notes, want) || strings.Contains(notes, "moved") || strings.Contains(notes, "mixed") {
		t.Errorf("notes are %q, want %q", notes, want)
	}
	notes = strings.Join(report.New(&sim.File{}, results[1:3]).Scenario.Notes, "\n")
	if strings.Contains(notes, "same node") {
		t.Errorf("unexpected note in %q", notes)
	}
}

func TestNothingPlaced(t *testing.T) {
	s := scenario(t, false)
	r := &sim.Result{Strategy: "x", Scenario: s, Outcomes: make([]sim.Outcome, len(s.Jobs)), End: t0, Accounted: t0}
	want := report.Run{
		Strategy: "x", EmptyNodes: "sleep", Sleep: &report.Sleep{}, Jobs: 20, UnplacedJobs: 20,
		Quality: energy.Estimated,
	}
	if diff := cmp.Diff(want, figures(r)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The time during which a job did not run is its wait, and delays by decisions count, including suspensions. The
// figures of a trial are the same.
func TestSuspensionsCount(t *testing.T) {
	s := scenario(t, false)
	s.Jobs = s.Jobs[:3]
	for i := range s.Jobs {
		s.Jobs[i].Interruptible, s.Jobs[i].AllowedDelay, s.Jobs[i].RestartCost = true, 4*time.Hour, 6*time.Minute
	}
	r := result(s, "residual", 0, false)
	suspend := func(i int, pause, redone time.Duration) {
		o := &r.Outcomes[i]
		at := o.Start.Add(5 * time.Minute)
		o.Runs = []sched.Window{
			{Start: o.Start, End: at}, {Start: at.Add(pause), End: at.Add(pause + redone + 5*time.Minute)},
		}
		o.Finish, o.Suspensions, o.Lost, o.Redone, o.Delayed = o.Runs[1].End, 1, redone, redone, pause+redone
	}
	suspend(0, 5*time.Hour, 0)
	suspend(1, 4*time.Hour, 6*time.Minute) // exceeds the limit only by the restart cost
	r.NodeEnergy = make([]energy.Joules, len(s.Nodes))
	var trial report.Trial
	trial.Measure(r)
	run := figures(r)
	if run.DelayViolations != 1 || run.Tolerated != 1 || run.Suspensions != 2 {
		t.Errorf("got %d violations, %d tolerated, %d suspensions, want 1, 1 and 2", run.DelayViolations, run.Tolerated,
			run.Suspensions)
	}
	if want := (5 * time.Hour).Seconds(); run.P95WaitSeconds != want || run.MeanWaitSeconds != (3*time.Hour).Seconds() {
		t.Errorf("got a maximum wait of %v s and a mean of %v s, want %v and %v", run.P95WaitSeconds, run.MeanWaitSeconds,
			want, want*3/5)
	}
	if run.DelayViolations != trial.Violations || run.Tolerated != trial.Tolerated ||
		run.Suspensions != trial.Suspensions ||
		run.MeanWaitSeconds != trial.MeanWait || run.P95WaitSeconds != trial.P95Wait ||
		run.MeanCompletionSeconds != trial.Turnaround {
		t.Errorf("the run is %+v, but its trial is %+v", run, trial)
	}
}

// The report contains the source of the scenario's forecasts.
func TestForecastOfAReport(t *testing.T) {
	s := scenario(t, false)
	said := func(models ...string) string {
		file := &sim.File{}
		for _, model := range models {
			file.Sites = append(file.Sites, sim.SiteFile{Forecast: sim.ForecastFile{Model: model}})
		}
		return report.New(file, []*sim.Result{result(s, "x", 0, false)}).Scenario.Forecast
	}
	for want, models := range map[string][]string{"perfect": nil, "history": {"history"}} {
		s.Foresight = nil
		if want != "perfect" {
			s.Foresight = []sim.Foresight{blind{}}
		}
		if got := said(models...); got != want {
			t.Errorf("sites with models %q: got forecast %q, want %q", models, got, want)
		}
	}
	s.Foresight = []sim.Foresight{blind{}} // of a scenario without a file
	if got := said(); got != "imperfect" {
		t.Errorf("unexpected forecast of a scenario without a file: %q", got)
	}
	other := *s.Sites[0]
	other.Name = "away"
	s.Sites = append(s.Sites, &other)
	s.Foresight = []sim.Foresight{blind{}, nil}
	if got := said("weather", ""); got != "weather (home), perfect (away)" {
		t.Errorf("unexpected forecast of two sites: %q", got)
	}
	s.Foresight = []sim.Foresight{blind{}, blind{}}
	if got := said("history", "history"); got != "history" {
		t.Errorf("unexpected forecast of two sites with one model: %q", got)
	}
}

// blind provides no forecasts.
type blind struct{}

func (blind) At(time.Time) grid.Signal { return grid.Signal{} }
