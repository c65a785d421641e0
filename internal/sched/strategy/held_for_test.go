package strategy_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
)

// aDayOf returns a day and a half of a synthetic signal with a daily cycle, noise, and a variable amplitude.
func aDayOf(t *testing.T, rnd *rand.Rand) *grid.Series {
	t.Helper()
	mean, swing, noise, phase := 50+700*rnd.Float64(), rnd.Float64(), 0.2*rnd.Float64(), 2*math.Pi*rnd.Float64()
	values := make([]float64, 36*4)
	for i := range values {
		wave := math.Sin(2*math.Pi*float64(i)/96 + phase)
		values[i] = max(0, mean*(1+swing*wave+noise*rnd.NormFloat64()))
	}
	series, err := grid.NewSeries(schedtest.Day, 15*time.Minute, values)
	if err != nil {
		t.Fatal(err)
	}
	return series
}

// TestHeldForSomething checks on 1,000 days with thresholds, percentiles and delays that a job is only held if this
// is expected to reduce emissions, or if its reason refers to an annotation that requires it.
func TestHeldForSomething(t *testing.T) {
	rnd := rand.New(rand.NewPCG(19, 4))
	held, named, unmet := 0, 0, 0
	for range 1000 {
		series := aDayOf(t, rnd)
		for range 20 {
			now := schedtest.Day.Add(time.Duration(rnd.IntN(8*60)) * time.Minute)
			job := sched.Job{
				ID: "j", Submitted: now, Duration: time.Duration(10+rnd.IntN(350)) * time.Minute,
				AllowedDelay: time.Duration(1+rnd.IntN(24*60)) * time.Minute,
			}
			switch strategy := rnd.IntN(3); strategy {
			case 0:
				job.Limits.Carbon = grid.Intensity(1 + 900*rnd.Float64())
			case 1:
				job.Limits.Percentile = 0.01 + 0.98*rnd.Float64()
			}
			name := "carbon+window"
			if job.Limits != (sched.Limits{}) {
				name = "carbon+threshold"
			}
			s := &sched.Snapshot{
				Now: now, Queue: []sched.Job{job},
				Sites: []*sched.Site{{Name: "site", Carbon: grid.Signal{Series: series}}},
				Policy: sched.Policy{
					MinSaving: 0.1 * rnd.Float64(), MinSavingPerHour: 0.02 * rnd.Float64(),
					MinSavingGrams: energy.Grams(rnd.Float64()),
				},
			}
			d := plan(t, name, s)[0]
			start := d.Window.Start
			if !start.After(now) {
				if d.Reason.Kind == sched.ThresholdUnmet {
					unmet++
				}
				continue
			}
			held++
			if strings.Contains(d.Reason.String(), "above the carbon-") {
				named++
				continue
			}
			if !series.Covers(start, start.Add(job.Duration)) {
				t.Fatalf("job is held for a window beyond the forecast: %v", d.Reason)
			}
			previous := series.Integral(now, now.Add(job.Duration))
			saved := previous - series.Integral(start, start.Add(job.Duration))
			if least := previous * max(s.Policy.MinSaving, s.Policy.MinSavingPerHour*start.Sub(now).Hours()); saved <= 0 ||
				saved < least*(1-1e-9) || d.Reason.Carbon < s.Policy.MinSavingGrams {
				t.Fatalf("saves %v of %v, want at least %v: %v", saved, previous, least, d.Reason)
			}
		}
	}
	if t.Logf("%d jobs held, %d because of an annotation; %d started above their threshold", held, named, unmet); held <
		5000 || named < 1000 || unmet < 1000 {
		t.Error("too few jobs of one kind")
	}
}

// TestEachHourOfWaitingSaves checks that the window with the highest saving beyond the required saving per hour of
// waiting is selected.
func TestEachHourOfWaitingSaves(t *testing.T) {
	values := []float64{100, 100, 90, 90, 90, 90, 90, 90, 90, 90, 90, 90, 85, 85, 85, 85, 85, 85, 85, 85, 85, 85, 85, 85}
	series, err := grid.NewSeries(schedtest.Day, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	for perHour, want := range map[float64]time.Duration{0: 12 * time.Hour, 0.004: 12 * time.Hour, 0.006: 2 * time.Hour, 0.06: 0} {
		d := plan(t, "carbon+window", &sched.Snapshot{
			Now: schedtest.Day, Sites: []*sched.Site{{Name: "site", Carbon: grid.Signal{Series: series}}},
			Queue:  []sched.Job{{ID: "j", Submitted: schedtest.Day, Duration: time.Hour, AllowedDelay: 20 * time.Hour}},
			Policy: sched.Policy{MinSavingPerHour: perHour},
		})[0]
		if wait := d.Window.Start.Sub(schedtest.Day); wait != want {
			t.Errorf("with %v per hour: waits %v, want %v: %v", perHour, wait, want, d.Reason)
		}
		if said := d.Reason.String(); want == 0 && !strings.Contains(said, "saves an estimated 15 %") {
			t.Errorf("reason does not contain the saving: %s", said)
		}
	}
}
