package strategy_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// TestSavingsAreInTheirUnits checks that the reported savings equal the avoided emissions or costs at the site's
// meter, and that they are not reported separately if both signals have a weight.
func TestSavingsAreInTheirUnits(t *testing.T) {
	values := slices.Concat(slices.Repeat([]float64{500}, 4), slices.Repeat([]float64{100}, 30))
	site := &sched.Site{Name: "s", PUE: 1.5, Carbon: schedtest.Hourly(t, values...), Price: schedtest.Hourly(t, values...)}
	j := sched.Job{
		ID: "j", Submitted: schedtest.Day, Duration: 2 * time.Hour, AllowedDelay: 10 * time.Hour,
		Request: sched.Resources{MilliCPU: 1000},
	}
	const want = 1.5 * 4 * 2 * (500 - 100) / 1000 // PUE, watts per core, hours, difference
	for _, when := range []string{"window", "rolling", "lowest-window", "carbon-time", "wait-awhile", "residual"} {
		for _, c := range []struct {
			weights       sched.Weights
			carbon, money float64
		}{
			{sched.Weights{}, want, 0},
			{sched.Weights{Carbon: 3}, want, 0},
			{sched.Weights{Price: 7}, 0, want},
			{sched.Weights{Carbon: 1, Price: 100}, 0, 0},
		} {
			j.Interruptible = when == "residual" || when == "wait-awhile"
			s := &sched.Snapshot{
				Now: schedtest.Day, Queue: []sched.Job{j}, Sites: []*sched.Site{site}, Policy: sched.Policy{Weights: c.weights},
			}
			share := "80 %"
			if when == "residual" { // it is compared with a run that may also pause later
				share = "67 %"
				c.carbon *= 0.50625
				c.money *= 0.50625
			}
			if when == "window" && c.weights.Carbon*c.weights.Price != 0 {
				c.carbon, c.money = want, want // it computes each signal separately
			}
			d := plan(t, "energy+"+when, s)[0]
			if !d.Held(schedtest.Day) || math.Abs(float64(d.Reason.Carbon)-c.carbon) > 1e-9 ||
				math.Abs(float64(d.Reason.Money)-c.money) > 1e-9 {
				t.Errorf("%s with weights %+v: held = %v, saves %v g and %v in money, want %v and %v", when, c.weights,
					d.Held(schedtest.Day), float64(d.Reason.Carbon),
					float64(d.Reason.Money), c.carbon, c.money)
			}
			if text := d.Reason.String(); !strings.Contains(text, share) ||
				(c.carbon == 0 && c.money == 0) == strings.Contains(text, "(") {
				t.Errorf("%s with weights %+v: unexpected reason: %s", when, c.weights, text)
			}
		}
	}
}

// TestReasonsContainTheSite checks that rules that consider only the site with the lowest cost over the next day report
// it if there are several sites.
func TestReasonsContainTheSite(t *testing.T) {
	site := func(name string, first float64) *sched.Site {
		values := slices.Repeat([]float64{100}, 48)
		values[0] = first
		return &sched.Site{Name: name, Carbon: schedtest.Hourly(t, values...)}
	}
	for _, c := range []struct {
		sites []*sched.Site
		want  string
	}{
		{[]*sched.Site{site("clean", 500), site("dirty", 5000)}, " at clean"},
		{[]*sched.Site{site("clean", 100), site("dirty", 5000)}, " at clean"},
		{[]*sched.Site{site("only", 500)}, ""},
		{[]*sched.Site{site("only", 100)}, ""},
	} {
		s := &sched.Snapshot{Now: schedtest.Day, Sites: c.sites, Queue: []sched.Job{{
			ID: "j", Submitted: schedtest.Day, Duration: time.Hour, AllowedDelay: 4 * time.Hour,
		}}}
		for _, when := range []string{
			"rolling", "residual", "carbon-scaler", "wait-awhile", "lowest-slot", "lowest-window", "carbon-time", "ecovisor",
		} {
			text := plan(t, "carbon+"+when, s)[0].Reason.String()
			if strings.Contains(text, " at "+c.sites[0].Name) != (c.want != "") || strings.Contains(text, "dirty") {
				t.Errorf("%s: the reason is %q, want %q in it", when, text, c.want)
			}
		}
	}
}

// TestRunningJobsGoByTheirOwnSite checks that a running job is not suspended because of the signal of another site.
func TestRunningJobsGoByTheirOwnSite(t *testing.T) {
	falling := make([]float64, 48)
	for i := range falling {
		falling[i] = 900 - 15*float64(i)
	}
	own := &sched.Site{Name: "own", Carbon: schedtest.Hourly(t, falling...)}
	own.Carbon.AsOf = schedtest.Day.Add(-10 * time.Hour)
	other := &sched.Site{Name: "other", Carbon: schedtest.Hourly(t, falling...)}
	other.Carbon.AsOf = schedtest.Day
	s := &sched.Snapshot{
		Now: schedtest.Day, Sites: []*sched.Site{own, other}, Nodes: []*sched.Node{{Name: "n", Site: own}},
		Policy: sched.Policy{MaxSignalAge: time.Hour},
		Queue: []sched.Job{{
			ID: "j", Submitted: schedtest.Day.Add(-time.Hour), Duration: 2 * time.Hour, Done: time.Hour, Running: true,
			Interruptible: true, AllowedDelay: 24 * time.Hour,
		}},
	}
	_, suspending := strategy.Families()
	for _, when := range suspending {
		if when == "plan" {
			continue // only suspends if all machines are known, see package sim
		}
		own.Carbon.AsOf = schedtest.Day.Add(-10 * time.Hour)
		if d := plan(t, "energy+"+when, s)[0]; d.Held(schedtest.Day) || d.Reason.Kind != sched.NoFreshSignal {
			t.Errorf("%s without a signal at its own site: unexpected reason: %v", when, d.Reason)
		}
		own.Carbon.AsOf = schedtest.Day
		if d := plan(t, "energy+"+when, s)[0]; !d.Held(schedtest.Day) {
			t.Errorf("%s with a signal at its own site: unexpected reason: %v", when, d.Reason)
		}
	}
}

// TestRollingIsExactBeyondTheForecast checks that steps beyond the end of the forecast, where the previous day is
// repeated, are considered as starts.
func TestRollingIsExactBeyondTheForecast(t *testing.T) {
	const step, dayOfSteps = 15 * time.Minute, 96
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(1, 900), dayOfSteps+2, dayOfSteps+8).Draw(t, "intensity")
		series, err := grid.NewSeries(schedtest.Day, step, values)
		if err != nil {
			t.Fatal(err)
		}
		long := slices.Clone(values)
		for len(long) < 6*dayOfSteps {
			long = append(long, long[len(long)-dayOfSteps])
		}
		repeated, err := grid.NewSeries(schedtest.Day, step, long)
		if err != nil {
			t.Fatal(err)
		}
		j := sched.Job{
			ID: "j", Submitted: schedtest.Day.Add(drawMinutes(t, 0, 29, "submitted")),
			Duration:     drawMinutes(t, 300, 1300, "length"),
			AllowedDelay: drawMinutes(t, 1, 1440, "delay"),
		}
		s := &sched.Snapshot{
			Now: j.Submitted, Queue: []sched.Job{j},
			Sites: []*sched.Site{{Name: "s", Carbon: grid.Signal{Series: series}}},
		}
		least := math.Inf(1)
		for start := j.Submitted; !start.After(j.LatestStart()); start = start.Add(time.Minute) {
			least = min(least, repeated.Integral(start, start.Add(j.Duration)))
		}
		d := plan(t, "energy+rolling", s)[0]
		if got := repeated.Integral(d.Window.Start, d.Window.Start.Add(j.Duration)); got > least*(1+1e-6) {
			t.Fatalf("job starts after %v at a cost of %v, want %v", d.Window.Start.Sub(j.Submitted), got, least)
		}
	})
}

func TestJobsOfNoLength(t *testing.T) {
	s := &sched.Snapshot{Now: schedtest.Day, Sites: []*sched.Site{{Name: "s", Carbon: schedtest.Hourly(t, 500, 400, 300)}}}
	s.Nodes = []*sched.Node{{Name: "n", Site: s.Sites[0]}}
	for _, when := range []string{"rolling", "wait-awhile", "carbon-time", "window"} {
		for _, interruptible := range []bool{false, true} {
			s.Queue = []sched.Job{{ID: "j", Submitted: schedtest.Day, AllowedDelay: 2 * time.Hour, Interruptible: interruptible}}
			if d := plan(t, "fcfs+"+when, s)[0]; d.Node != "n" || d.Reason.Kind != sched.NothingToSave {
				t.Errorf("%s: placed on %q, unexpected reason: %v", when, d.Node, d.Reason)
			}
		}
	}
}

// TestReasonsOfEcovisor checks the reasons for jobs that ecovisor holds or suspends, including the end of the hold.
func TestReasonsOfEcovisor(t *testing.T) {
	values := slices.Concat([]float64{500, 500, 500, 90, 80, 70, 60, 50}, slices.Repeat([]float64{500}, 12),
		[]float64{20, 20, 20, 20})
	s := &sched.Snapshot{Now: schedtest.Day, Sites: []*sched.Site{{Name: "s", Carbon: schedtest.Hourly(t, values...)}}}
	for _, c := range []struct {
		running bool
		delay   time.Duration
		kind    sched.ReasonKind
		until   time.Time
		text    []string
	}{
		{
			false, 12 * time.Hour, sched.AboveThreshold, schedtest.Day.Add(5 * time.Hour),
			[]string{"held until 2", "05:00:00Z: 500 gCO2e/kWh now, above", "starts by"},
		},
		{
			true, 12 * time.Hour, sched.SuspendedAbove, schedtest.Day.Add(5 * time.Hour),
			[]string{"suspended until 2", "05:00:00Z: 500 gCO2e/kWh now, above", "resumes by"},
		},
		{
			true, 2 * time.Hour, sched.SuspendedAbove,
			time.Time{},
			[]string{"suspended until 2", "02:00:00Z: 500", "does not fall below it before then"},
		},
	} {
		s.Queue = []sched.Job{{
			ID: "j", Submitted: schedtest.Day, Duration: time.Hour, Running: c.running, Interruptible: true,
			AllowedDelay: c.delay,
		}}
		d := plan(t, "fcfs+ecovisor", s)[0]
		if d.Reason.Kind != c.kind || !d.Reason.Until.Equal(c.until) || !d.Again.Equal(schedtest.Day.Add(time.Hour)) {
			t.Errorf("%+v: got %v until %v, next decision at %v", c, d.Reason.Kind, d.Reason.Until, d.Again)
		}
		for _, part := range c.text {
			if text := d.Reason.String(); !strings.Contains(text, part) {
				t.Errorf("reason %q does not contain %q", text, part)
			}
		}
	}
}

// TestWaitAwhileSavesEnough checks that a pause with a small saving is omitted if the policy requires more.
func TestWaitAwhileSavesEnough(t *testing.T) {
	values := slices.Concat([]float64{100}, slices.Repeat([]float64{95}, 30))
	s := &sched.Snapshot{Now: schedtest.Day, Sites: []*sched.Site{{Name: "s", Carbon: schedtest.Hourly(t, values...)}}}
	s.Queue = []sched.Job{{
		ID: "j", Submitted: schedtest.Day, Duration: time.Hour, Interruptible: true, AllowedDelay: 5 * time.Hour,
	}}
	for saving, held := range map[float64]bool{0: true, 0.04: true, 0.06: false} {
		s.Policy.MinSaving = saving
		if d := plan(t, "energy+wait-awhile", s)[0]; d.Held(schedtest.Day) != held {
			t.Errorf("Held() = %v for a saving of 5 %% and a minimum of %v", d.Held(schedtest.Day), saving)
		}
	}
}
