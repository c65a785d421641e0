package energy_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

var plug = energy.Domain{Kind: energy.Wall, Name: "plug"}

// KubEnergySched divided watt-seconds by 3600 and reported them as kilowatt-hours.
func TestHundredWattsForAnHour(t *testing.T) {
	g := energy.NewIntegrator(plug, energy.Derived, 10*sec)
	first := g.Next(100, 0)
	last := first
	for s := time.Duration(1); s <= 3600; s++ {
		last = g.Next(100, s*sec)
	}
	if used := last.Total - first.Total; used != 360_000e6 || math.Abs(used.Joules().KWh()-0.1) > 1e-12 {
		t.Errorf("energy of 100 W for an hour = %v, want 0.1 kWh", used)
	}
	if last.Run != first.Run || last.Quality != energy.Derived || last.Domain != plug {
		t.Errorf("unexpected last reading %+v", last)
	}
}

// The sum of trapezoids is exact at any time, including after restarts.
func TestIntegratorAgainstOracle(t *testing.T) {
	rounds := 300
	if long {
		rounds = 30_000
	}
	for round := range rounds {
		rng := rand.New(rand.NewPCG(uint64(round), 6))
		g := energy.NewIntegrator(plug, energy.Measured, time.Minute)
		at, sum, run, before := time.Duration(rng.Int64N(1e15)), new(big.Int), uint32(0), uint64(0)
		for i := range 200 {
			dt := time.Duration(1 + rng.Int64N(int64(time.Minute)))
			if rng.UintN(3) == 0 {
				dt = time.Duration(1 + rng.Int64N(1000))
			}
			at += dt
			w := energy.Watts(rng.Float64() * math.Pow(10, float64(rng.IntN(7))))
			r := g.Next(w, at)
			power := uint64(math.RoundToEven(float64(w) * 1e6))
			if i == 0 {
				run = r.Run
			} else {
				sum.Add(sum, new(big.Int).Mul(new(big.Int).SetUint64(power+before), big.NewInt(int64(dt))))
			}
			before = power
			want := new(big.Int).Div(sum, big.NewInt(2e9))
			if r.Run != run || int64(r.Total) != want.Int64() || r.At != at {
				t.Fatalf("round %d, sample %d: got %+v, want %v µJ in run %d", round, i, r, want, run)
			}
			if rng.UintN(10) == 0 {
				g = energy.NewIntegrator(plug, energy.Measured, time.Minute)
				g.Resume(r)
			}
		}
	}
}

func TestIntegratorRefuses(t *testing.T) {
	for _, bad := range []energy.Watts{
		energy.Watts(math.NaN()), energy.Watts(math.Inf(1)), energy.Watts(math.Inf(-1)), -1, 2e6,
	} {
		g := energy.NewIntegrator(plug, energy.Measured, time.Minute)
		a := g.Next(100, sec)
		if r := g.Next(bad, 2*sec); r != a {
			t.Errorf("Next(%v W) = %+v, want the last reading", float64(bad), r)
		}
		b := g.Next(100, 3*sec)
		if b.Run == a.Run || b.Total != a.Total || b.At != 3*sec {
			t.Errorf("reading after %v W = %+v, want a new run", float64(bad), b)
		}
		if c := g.Next(100, 4*sec); c.Run != b.Run || c.Total != b.Total+100e6 {
			t.Errorf("unexpected second reading of the new run: %+v", c)
		}
		g = energy.NewIntegrator(plug, energy.Measured, time.Minute)
		first := g.Next(bad, sec)
		if second := g.Next(100, 2*sec); first.At != sec || second.Run == first.Run || second.Total != first.Total {
			t.Errorf("unexpected reading after %v W as the first sample: %+v", float64(bad), second)
		}
	}
}

func TestIntegratorGaps(t *testing.T) {
	g := energy.NewIntegrator(plug, energy.Measured, 10*sec)
	a := g.Next(100, sec)
	b := g.Next(300, 11*sec)
	if b.Run != a.Run || b.Total-a.Total != 2000e6 {
		t.Errorf("from 100 to 300 W in 10 s: got %+v after %+v", b, a)
	}
	c := g.Next(300, 21*sec+1)
	if c.Run == b.Run || c.Total != b.Total {
		t.Errorf("after a gap of more than 10 s: got %+v after %+v", c, b)
	}
	if d := g.Next(500, 21*sec+1); d != c {
		t.Errorf("reading of the same time = %+v after %+v", d, c)
	}
	if d := g.Next(500, sec); d != c {
		t.Errorf("reading of an earlier time = %+v after %+v", d, c)
	}
	// The state belongs to another boot with a later clock.
	h := energy.NewIntegrator(plug, energy.Measured, 10*sec)
	h.Resume(energy.Reading{Domain: plug, At: time.Hour, Total: 5, Run: 3, Raw: 100e6})
	if r := h.Next(100, sec); r.At != sec || r.Run == 3 {
		t.Errorf("reading after resuming from a later time = %+v", r)
	}
	h = energy.NewIntegrator(plug, energy.Measured, 10*sec)
	h.Resume(energy.Reading{Domain: plug, At: math.MinInt64, Total: 5, Run: 3, Raw: 100e6})
	if r := h.Next(100, math.MaxInt64); r.Run == 3 || r.Total < 0 {
		t.Errorf("reading after resuming from the minimum time = %+v", r)
	}
}
