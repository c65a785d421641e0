package strategy_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// TestDeadlineOfOneThatOutlivedItsMean checks that a job that has run longer than the mean is not expected to
// finish soon, and that its completion deadline is based on the residual run time.
func TestDeadlineOfOneThatOutlivedItsMean(t *testing.T) {
	// Four out of five jobs finish within one hour, the others run for seven to nine hours.
	survival := slices.Concat([]float64{1}, slices.Repeat([]float64{0.2}, 7), []float64{0.1, 0})
	falling := make([]float64, 48)
	for i := range falling {
		falling[i] = 900 - 10*float64(i)
	}
	for name, c := range map[string]struct {
		runtimes *sched.Runtimes
		duration time.Duration
		left     time.Duration
	}{
		"run-time distribution": {
			lives(t, time.Hour, survival...), 2 * time.Hour,
			lives(t, time.Hour, survival...).Residual(3 * time.Hour),
		},
		"longer than the distribution": {lives(t, time.Hour, 1, 0.5, 0), time.Hour, 3 * time.Hour},
		"mean only":                    {nil, 2 * time.Hour, 3 * time.Hour},
	} {
		s := &sched.Snapshot{
			Now: schedtest.Day.Add(3 * time.Hour), Sites: []*sched.Site{{Name: "s", Carbon: schedtest.Hourly(t, falling...)}},
		}
		s.Queue = []sched.Job{{
			ID: "j", Submitted: schedtest.Day, Duration: c.duration, Runtimes: c.runtimes, Done: 3 * time.Hour, Running: true,
			Interruptible: true,
			AllowedDelay:  24 * time.Hour, FinishBy: s.Now.Add(c.left + time.Hour),
		}}
		for _, when := range []string{"ecovisor", "residual", "wait-awhile"} {
			d := plan(t, "energy+"+when, s)[0]
			if when == "ecovisor" && !d.Held(s.Now) {
				t.Errorf("%s: %s does not suspend the job at the most expensive hour", name, when)
			}
			if d.Held(s.Now) && !d.Reason.Latest.Equal(s.Now.Add(time.Hour)) {
				t.Errorf("%s: %s holds the job until %v, want at most one hour", name, when, d.Reason.Latest.Sub(s.Now))
			}
		}
	}
}

// TestResumedJobsArePricedByWhatIsLeft checks that a resumed job is placed based on the cost of its remaining work.
func TestResumedJobsArePricedByWhatIsLeft(t *testing.T) {
	soon, later := slices.Repeat([]float64{900}, 30), slices.Repeat([]float64{300}, 30)
	soon[0] = 100
	sites := []*sched.Site{
		{Name: "clean for an hour", Carbon: schedtest.Hourly(t, soon...)}, {Name: "cleaner by day", Carbon: schedtest.Hourly(t, later...)},
	}
	s := &sched.Snapshot{Now: schedtest.Day, Sites: sites}
	for i, site := range sites {
		s.Nodes = append(s.Nodes, &sched.Node{
			Name: []string{"a", "b"}[i], Site: site, Capacity: sched.Resources{MilliCPU: 8000, Memory: 1 << 40},
			Free:    sched.Resources{MilliCPU: 8000, Memory: 1 << 40},
			Profile: &energy.Profile{Idle: 100, Max: 300, Sleep: 100},
		})
	}
	long := sched.Job{
		ID: "long", Submitted: schedtest.Day.Add(-30 * time.Hour), Duration: 24 * time.Hour, Done: 23*time.Hour + 30*time.Minute,
		Interruptible: true,
		RestartCost:   10 * time.Minute, Request: sched.Resources{MilliCPU: 1000},
	}
	s.Queue = []sched.Job{long}
	end := schedtest.Day.Add(40 * time.Minute)
	for _, when := range []string{"now", "ecovisor", "wait-awhile", "residual", "window", "carbon-scaler"} {
		if s.Queue[0].Scaling = nil; when == "carbon-scaler" {
			s.Queue[0].Scaling = sched.Amdahl(1, 1, 1)
		}
		d := plan(t, "carbon+"+when, s)[0]
		if d.Node != "a" || !d.Window.End.Equal(end) || !d.Cost.Finish.Equal(end) {
			t.Errorf("%s: placed on %s until %v, estimated until %v, want a for 40 minutes",
				when, d.Node, d.Window.End.Sub(schedtest.Day), d.Cost.Finish.Sub(schedtest.Day))
		}
		if want := 25.0 * 100 * (40.0 / 60) / 1000; math.Abs(float64(d.Cost.Carbon)-want) > 1e-9 {
			t.Errorf("%s: estimated %v g, want %v", when, float64(d.Cost.Carbon), want)
		}
	}
	short := long
	short.ID, short.Duration, short.Done, short.RestartCost = "short", time.Hour, 0, 0
	s.Queue = []sched.Job{short, long}
	s.Nodes = s.Nodes[:1]
	s.Nodes[0].Free.MilliCPU = 1000
	for _, name := range []string{"min-min", "energy+now/shortest", "energy+now/least-work"} {
		if p := plan(t, name, s); p[1].Node != "a" {
			t.Errorf("%s serves a job of one hour before one with 40 minutes remaining", name)
		}
	}
}

// TestDeadlinesWithRestarts checks that all suspending start rules reserve slack for the restart costs.
func TestDeadlinesWithRestarts(t *testing.T) {
	values := make([]float64, 60)
	for i := range values {
		values[i] = 300 + 200*math.Sin(2*float64(i)) + 50*math.Sin(float64(i))
	}
	series, err := grid.NewSeries(schedtest.Day, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	_, suspending := strategy.Families()
	for _, when := range suspending {
		if when == "plan" {
			continue // only suspends if all machines are known, see package sim
		}
		suspensions := 0
		for i := range 40 {
			j := sched.Job{
				ID: "j", Submitted: schedtest.Day.Add(time.Duration(i) * 7 * time.Minute),
				Duration:     5*time.Hour + time.Duration(i)*time.Minute,
				AllowedDelay: 12 * time.Hour, Interruptible: true, RestartCost: 25 * time.Minute,
			}
			if j.FinishBy = j.Submitted.Add(j.Duration + 6*time.Hour); i%2 == 0 {
				j.FinishBy, j.AllowedDelay = time.Time{}, 6*time.Hour
			}
			l := live(t, when, series, j)
			suspensions += l.suspensions
			if late := l.finish.Sub(j.Submitted.Add(j.Duration + 6*time.Hour)); late > 0 {
				t.Errorf("%s: job %d finished %v late", when, i, late)
			}
		}
		if suspensions < 10 {
			t.Errorf("%s: only %d suspensions, want at least 10", when, suspensions)
		}
	}
}
