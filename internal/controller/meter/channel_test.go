package meter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

func testChannel(t testing.TB, factor float64) *channel {
	t.Helper()
	c, err := Parse(fmt.Appendf(nil, "meters: [{node: w, kind: tasmota, url: 'http://x', factor: %v}]", factor))
	if err != nil {
		t.Fatal(err)
	}
	return newChannel("n/0", &c.Meters[0])
}

// TestCounterRuns verifies that a counter that decreases or is reset starts a new run, and that an implausible
// increase is rejected.
func TestCounterRuns(t *testing.T) {
	c := testChannel(t, 1)
	at := time.Duration(0)
	read := func(counts uint64, epoch string) energy.Reading {
		at += time.Minute
		return c.next(sample{
			powered: true, counted: true, counts: counts, unit: microjoulesPerWattMinute, epoch: epoch,
		}, at)
	}
	first := read(100, "a")
	if r := read(103, "a"); r.Run != first.Run || r.Total != first.Total+180_000_000 || r.Quality != energy.Measured ||
		r.Domain.Kind != energy.Wall {
		t.Errorf("unexpected reading %+v after %+v", r, first)
	}
	if r := read(2, "a"); r.Run == first.Run {
		t.Error("a decreased counter did not start a new run")
	}
	before := read(3, "a")
	if r := read(5, "b"); r.Run == before.Run || r.Total != before.Total {
		t.Error("a reset counter did not start a new run")
	}
	before = read(6, "b")
	if r := read(1_000_000, "b"); r.Run == before.Run {
		t.Error("an implausible increase was accepted")
	}
}

// TestCoarseCounterIsFilledIn verifies the interpolation of a coarse counter with random power, load and polling
// times. The total never decreases, and it differs from the counter by less than one step.
func TestCoarseCounterIsFilledIn(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		factor := []float64{1, 0.97, 1.234567}[seed%3]
		c := testChannel(t, factor)
		digits := 1 + r.IntN(5)
		unit := math.Pow10(-digits) * 3.6e6 // in joules
		bias := 0.8 + 0.4*r.Float64()       // error of the reported power
		truth, at := r.Float64()*1e9, time.Duration(0)
		begun := truth
		var first, last energy.Reading
		load := 100.0
		for i := range 400 {
			dt := time.Duration(1+r.Int64N(20)) * time.Second
			if r.IntN(5) == 0 {
				load = r.Float64() * 2000
			}
			if r.IntN(50) == 0 {
				dt = time.Duration(r.Int64N(int64(10 * time.Minute)))
			}
			at += dt
			truth += load * dt.Seconds()
			steps := math.Floor(truth / unit)
			s := sample{
				watts: load * bias, powered: true, counted: true,
				counts: uint64(math.Round(steps * math.Pow10(kWhDecimals-digits))),
				unit:   microjoulesPerCount, step: uint64(math.Pow10(kWhDecimals - digits)),
			}
			got := c.next(s, at)
			if i == 0 {
				first, begun = got, steps*unit
			}
			if got.Run != first.Run || got.Quality != energy.Derived {
				t.Fatalf("seed %d: %+v", seed, got)
			}
			if got.Total < last.Total && i > 0 {
				t.Fatalf("seed %d: the total decreased from %d to %d", seed, last.Total, got.Total)
			}
			counter := (steps*unit - begun) * factor
			if off := float64((got.Total - first.Total).Joules()) - counter; off < -1e-3 || off >= unit*factor+1e-3 {
				t.Fatalf("seed %d: got a difference of %v J, the steps of the counter are %v J", seed, off, unit*factor)
			}
			last = got
		}
	}
}

// TestFilledMinutes verifies that the energy between two steps of a coarse counter is distributed over the
// interval.
func TestFilledMinutes(t *testing.T) {
	c := testChannel(t, 1)
	truth, at := 0.0, time.Duration(0)
	var before energy.Reading
	for i := range 60 {
		at += 10 * time.Second
		truth += 50 * 10
		r := c.next(sample{
			watts: 50, powered: true, counted: true, counts: 100 * uint64(truth/3600), unit: microjoulesPerCount,
			step: 100,
		}, at)
		// The position of a step between two samples is unknown.
		if used := (r.Total - before.Total).Joules(); i > 0 && (used < 200 || used > 900) {
			t.Errorf("after %v: got %v J, want about 500", at, float64(used))
		}
		before = r
	}
}

// TestIntegratedPower verifies that power without a counter is integrated and that a long gap starts a new run.
func TestIntegratedPower(t *testing.T) {
	c := testChannel(t, 2)
	a := c.next(sample{watts: 100, powered: true}, time.Second)
	b := c.next(sample{watts: 200, powered: true}, 11*time.Second)
	if b.Run != a.Run || b.Total-a.Total != 3000e6 || b.Quality != energy.Derived {
		t.Errorf("%+v, %+v", a, b)
	}
	if gap := c.next(sample{watts: 200, powered: true}, time.Hour); gap.Run == b.Run {
		t.Error("an hour without a sample was integrated")
	}
}

// TestCalibration verifies that the factor is applied without rounding errors.
func TestCalibration(t *testing.T) {
	c := testChannel(t, 1.000001)
	var last energy.Reading
	for i := range uint64(1001) {
		last = c.next(sample{counted: true, powered: true, counts: i, unit: microjoulesPerMilliwattHour},
			time.Duration(i+1)*time.Minute)
	}
	if want := energy.Microjoules(3_600_000*1000 + 3600); last.Total != want {
		t.Errorf("got %d µJ, want %d", last.Total, want)
	}
}
