package strategy_test

import (
	"fmt"
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

// halfRate is a sufficient sampling interval, because the generated signals only change at multiples of it.
const halfRate = 2 * time.Minute

// drawThreshold generates a job with limits, with times and steps of signals that are multiples of halfRate.
func drawThreshold(t *rapid.T) *sched.Snapshot {
	minutes := func(most int, label string) time.Duration {
		return halfRate * time.Duration(rapid.IntRange(0, most).Draw(t, label))
	}
	series := func(step time.Duration, value *rapid.Generator[float64], label string) grid.Signal {
		s, err := grid.NewSeries(schedtest.Day.Add(-minutes(5, label+"Start")), step,
			rapid.SliceOfN(value, 20, 60).Draw(t, label))
		if err != nil {
			t.Fatal(err)
		}
		return grid.Signal{Series: s}
	}
	s := &sched.Snapshot{Now: schedtest.Day.Add(minutes(60, "now"))}
	for i := range rapid.IntRange(1, 3).Draw(t, "sites") {
		s.Sites = append(s.Sites, &sched.Site{
			Name:   fmt.Sprint("site", i),
			Carbon: series(10*time.Minute, rapid.Float64Range(0, 900), fmt.Sprint("carbon", i)),
			Price:  series(14*time.Minute, rapid.Float64Range(-0.1, 0.5), fmt.Sprint("price", i)),
		})
	}
	limits := schedtest.DrawLimits(t)
	limits.HasPrice = limits.HasPrice || limits.NoCarbon || limits.Carbon == 0 && limits.Percentile == 0
	s.Queue = []sched.Job{{
		ID: "j", Submitted: s.Now, Duration: time.Hour, AllowedDelay: minutes(300, "delay") + halfRate, Limits: limits,
	}}
	return s
}

// keeps is the reference implementation of the threshold rule: at least one site is within all limits at t.
func keeps(s *sched.Snapshot, l *sched.Limits, t time.Time) bool {
	return slices.ContainsFunc(s.Sites, func(site *sched.Site) bool {
		carbon, price := site.Carbon.Series, site.Price.Series
		ok := true
		if !l.NoCarbon && l.Carbon > 0 {
			ok = ok && carbon.Covers(t, t) && carbon.At(t) <= float64(l.Carbon)
		}
		if !l.NoCarbon && l.Percentile > 0 {
			ok = ok && carbon.Covers(t, t) && carbon.At(t) <= plainQuantile(carbon, s.Now, l.Percentile)
		}
		if l.HasPrice {
			ok = ok && price.Covers(t, t) && price.At(t) <= float64(l.Price)
		}
		return ok
	})
}

// plainQuantile samples the next day instead of weighting steps by their length.
func plainQuantile(s *grid.Series, now time.Time, p float64) float64 {
	var values []float64
	for t := now; t.Before(now.Add(24*time.Hour)) && s.Covers(t, t); t = t.Add(halfRate) {
		values = append(values, s.At(t))
	}
	slices.Sort(values)
	return values[int(math.Ceil(p*float64(len(values))))-1]
}

// TestThresholdStartsAtTheFirstInstantWithinLimits compares the threshold rule with a search over every second
// minute. If there is no start within the limits, the job starts as with "window" or, if the forecast ends before,
// at the latest start.
func TestThresholdStartsAtTheFirstInstantWithinLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawThreshold(t)
		job := &s.Queue[0]
		d := plan(t, "energy+threshold", s)[0]
		want := job.LatestStart()
		if slices.Contains([]sched.ReasonKind{sched.ThresholdUnmet, sched.CheaperLater}, d.Reason.Kind) {
			for at := s.Now; !at.After(want); at = at.Add(halfRate) {
				if keeps(s, &job.Limits, at) {
					t.Fatalf("limits are met at %v: %v", at, d.Reason)
				}
			}
			return
		}
		if d.Reason.Kind != sched.AboveThreshold && d.Reason.Kind != sched.WithinThreshold {
			t.Fatalf("unexpected reason: %v", d.Reason)
		}
		for at := s.Now; at.Before(want); at = at.Add(halfRate) {
			if keeps(s, &job.Limits, at) {
				want = at
			}
		}
		if !d.Window.Start.Equal(want) {
			t.Fatalf("job starts at %v, want %v: %v", d.Window.Start, want, d.Reason)
		}
		if named := !d.Reason.Until.IsZero(); d.Reason.Kind == sched.AboveThreshold &&
			named != keeps(s, &job.Limits, want) {
			t.Fatalf("Until = %v, but the limits are met then: %v", d.Reason.Until, !named)
		}
		if d.Held(s.Now) && !(d.Reason.Present > d.Reason.Threshold) {
			t.Fatalf("unexpected reason for a held job: %v", d.Reason)
		}
	})
}

// TestPercentileIsInvariantToScaling checks that a percentile does not depend on the unit of the signal.
func TestPercentileIsInvariantToScaling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawThreshold(t)
		s.Queue[0].Limits = sched.Limits{Percentile: rapid.Float64Range(0.01, 0.99).Draw(t, "share")}
		want := plan(t, "energy+threshold", s)[0]
		// Factors are powers of two, so that distinct values remain distinct.
		factor := rapid.SampledFrom([]float64{1.0 / 1024, 0.5, 2, 4096}).Draw(t, "factor")
		for _, site := range s.Sites {
			old := site.Carbon.Series
			values := make([]float64, old.Len())
			for i := range values {
				values[i] = factor * old.Value(i)
			}
			scaled, err := grid.NewSeries(old.Start(), old.Step(), values)
			if err != nil {
				t.Fatal(err)
			}
			site.Carbon.Series = scaled
		}
		got := plan(t, "energy+threshold", s)[0]
		if !got.Window.Start.Equal(want.Window.Start) || got.Reason.Kind != want.Reason.Kind ||
			got.Reason.Threshold != factor*want.Reason.Threshold {
			t.Fatalf("with a factor of %v the job starts at %v (%v), but at %v (%v) without it",
				factor, got.Window.Start, got.Reason, want.Window.Start, want.Reason)
		}
	})
}

// TestPriceAloneIgnoresCarbon checks that with price as the only weight, decisions do not depend on the carbon
// signal, whether it is different, stale or missing.
func TestPriceAloneIgnoresCarbon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		addPrices(t, s)
		s.Policy.MaxSignalAge = time.Hour
		for i := range s.Queue {
			s.Queue[i].Limits = schedtest.DrawLimits(t)
			s.Queue[i].Limits.NoCarbon = true
		}
		name := rapid.SampledFrom(schedtest.Strategies).Draw(t, "strategy")
		want := plan(t, name, s)
		for _, site := range s.Sites {
			site.Carbon = grid.Signal{}
			if rapid.Bool().Draw(t, "scrambled") {
				series, err := grid.NewSeries(schedtest.Day, 11*time.Minute, anyIntensity(t, "scrambledIntensity"))
				if err != nil {
					t.Fatal(err)
				}
				site.Carbon = grid.Signal{Series: series}
			}
			if rapid.Bool().Draw(t, "stale") {
				site.Carbon.AsOf = s.Now.Add(-2 * time.Hour)
			}
		}
		got := plan(t, name, s)
		for i := range want { // the resulting emissions are not part of the decision
			want[i].Cost.Carbon, got[i].Cost.Carbon = 0, 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: plan depends on the carbon signal:\n%s", name, diff)
		}
	})
}

// TestUnknownSitesAreLeftOut checks that a site without signals does not affect decisions for other sites, and that
// no job is held if no site has signals.
func TestUnknownSitesAreLeftOut(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	series, err := grid.NewSeries(now, time.Hour, []float64{400, 400, 100, 100, 100, 100, 100, 100})
	if err != nil {
		t.Fatal(err)
	}
	known := &sched.Site{Name: "known", Carbon: grid.Signal{Series: series}}
	silent := &sched.Site{Name: "silent"}
	stale := &sched.Site{Name: "stale", Carbon: grid.Signal{Series: series, AsOf: now.Add(-5 * time.Hour)}}
	job := sched.Job{
		ID: "j", Submitted: now, Duration: time.Hour, AllowedDelay: 4 * time.Hour, Limits: sched.Limits{Carbon: 200},
	}
	for _, name := range []string{"carbon+window", "carbon+threshold"} {
		strategy, err := strategy.New(name)
		if err != nil {
			t.Fatal(err)
		}
		decide := func(sites ...*sched.Site) sched.Decision {
			return strategy.Plan(&sched.Snapshot{
				Now: now, Queue: []sched.Job{job}, Sites: sites, Policy: sched.Policy{MaxSignalAge: 2 * time.Hour},
			})[0]
		}
		alone, beside := decide(known), decide(silent, known, stale)
		if !alone.Window.Start.Equal(now.Add(2*time.Hour)) || !beside.Window.Start.Equal(alone.Window.Start) {
			t.Errorf("%s: held until %v without and until %v with unknown sites", name, alone.Window.Start,
				beside.Window.Start)
		}
		if d := decide(silent, stale); d.Held(now) || d.Reason.Kind != sched.NoFreshSignal {
			t.Errorf("%s: unexpected reason without known sites: %v", name, d.Reason)
		}
	}
}
