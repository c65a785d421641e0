package energy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
)

var dawn = time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)

// If τ is two samples long, a step is followed to within 5 % in at most five samples, regardless of its size, its
// direction and the noise of the meter.
func TestSmoothedFollowsSteps(t *testing.T) {
	const every = 15 * time.Second
	for _, tc := range []struct{ from, to, noise float64 }{
		{100, 200, 0},
		{200, 100, 0},
		{0, 50, 0},
		{50, 0.5, 0},
		{100, 110, 0},
		{100, 1000, 0},
		{1000, 30, 0},
		{100, 104, 0},
		{100, 200, 0.01},
		{200, 100, 0.01},
		{20, 60, 0.02},
		{60, 20, 0.02},
	} {
		var s energy.Smoothed
		rng := rand.New(rand.NewPCG(3, 4))
		at := dawn
		feed := func(level float64) float64 {
			at = at.Add(every)
			s.Add(energy.Watts(level*(1+tc.noise*(2*rng.Float64()-1))), every, at, 2*every)
			return float64(s.Mean())
		}
		for range 40 {
			feed(tc.from)
		}
		taken := 0
		for n := 1; n <= 10; n++ {
			if off := math.Abs(feed(tc.to) - tc.to); off > 0.05*tc.to {
				taken = n
			}
		}
		if taken++; taken > 5 {
			t.Errorf("from %v W to %v W, noise %v: mean is within 5 %% after %d samples, want at most 5",
				tc.from, tc.to, tc.noise, taken)
		}
	}
}

// The mean is the integral of past power weighted by e^(−t/τ), regardless of how it is divided into samples. The
// test uses regular intervals of one, two and seven, and random ones, which would give different results if all
// samples had the same weight.
func TestSmoothedDoesNotDependOnSampling(t *testing.T) {
	const tau = 5 * time.Minute
	power := func(at time.Duration) float64 { return 100 + 20*math.Sin(at.Minutes()) }
	mean := func(from, to time.Duration) float64 {
		return 100 + 20*(math.Cos(from.Minutes())-math.Cos(to.Minutes()))/(to-from).Minutes()
	}
	want, weights := 0.0, 0.0
	const end = time.Hour
	for at := time.Duration(0); at < end; at += 100 * time.Millisecond {
		w := math.Exp(-(end - at).Seconds() / tau.Seconds())
		want += w * power(at)
		weights += w
	}
	want /= weights
	rng := rand.New(rand.NewPCG(5, 6))
	for name, next := range map[string]func() time.Duration{
		"1 s":       func() time.Duration { return time.Second },
		"2 s":       func() time.Duration { return 2 * time.Second },
		"15 s":      func() time.Duration { return 15 * time.Second },
		"irregular": func() time.Duration { return time.Duration(1+rng.IntN(30)) * time.Second },
	} {
		var s energy.Smoothed
		for from := time.Duration(0); from < end; {
			to := min(from+next(), end)
			s.Add(energy.Watts(mean(from, to)), to-from, dawn.Add(to), tau)
			from = to
		}
		if off := math.Abs(float64(s.Mean()) - want); off > 0.02*want {
			t.Errorf("samples of %s: Mean() = %v, want %v", name, s.Mean(), want)
		}
	}
}

// In the steady state, the newest sample has the weight 1 − e^(−Δt/τ).
func TestSmoothedWeighsAsAnEWMA(t *testing.T) {
	const every, tau = 15 * time.Second, 60 * time.Second
	var s energy.Smoothed
	rng, at, ewma := rand.New(rand.NewPCG(1, 1)), dawn, 0.0
	alpha := 1 - math.Exp(-every.Seconds()/tau.Seconds())
	for i := range 200 {
		at = at.Add(every)
		x := 100 + 40*rng.Float64()
		s.Add(energy.Watts(x), every, at, tau)
		ewma += alpha * (x - ewma)
		if i > 60 && math.Abs(float64(s.Mean())-ewma) > 1e-3 {
			t.Fatalf("sample %d: Mean() = %v, want %v", i, s.Mean(), ewma)
		}
	}
}

// All replicas are included, also those with different loads. An average over copies would only reflect the first
// one.
func TestSmoothedAveragesReplicas(t *testing.T) {
	const every, tau = 15 * time.Second, 5 * time.Minute
	for _, order := range [][]energy.Watts{{10, 30}, {10, 10, 10, 30, 30, 30}, {30, 10, 30, 10}, {5, 10, 20, 45}} {
		var s energy.Smoothed
		want := energy.Watts(0)
		for _, w := range order {
			want += w / energy.Watts(len(order))
		}
		at := dawn
		for range 100 {
			at = at.Add(every)
			for _, w := range order {
				s.Add(w, every, at, tau)
			}
		}
		if off := s.Mean() - want; off > want/100 || off < -want/100 {
			t.Errorf("replicas of %v W: Mean() = %v, want %v", order, s.Mean(), want)
		}
		if s.Deviation() < want/4 {
			t.Errorf("replicas of %v W: Deviation() = %v, want at least a quarter of the mean", order, s.Deviation())
		}
	}
}

// For any input, mean and deviation are finite and nonnegative, and the mean is between the minimum and the maximum
// of the samples.
func TestSmoothedStaysSensible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s energy.Smoothed
		least, most := math.Inf(1), 0.0
		for range rapid.IntRange(0, 40).Draw(t, "samples") {
			x := rapid.OneOf(rapid.Float64Range(0, 1e5),
				rapid.SampledFrom([]float64{-1, math.NaN(), math.Inf(1), 0})).Draw(t, "watts")
			over := time.Duration(rapid.Int64Range(-1e9, 1e12).Draw(t, "over"))
			tau := time.Duration(rapid.SampledFrom([]int64{-1, 0, 1e9, 3e11}).Draw(t, "tau"))
			s.Add(energy.Watts(x), over, dawn.Add(time.Duration(rapid.Int64Range(-1e13, 1e13).Draw(t, "end"))), tau)
			if x >= 0 && !math.IsInf(x, 1) && over > 0 && tau > 0 {
				least, most = min(least, x), max(most, x)
			}
		}
		mean, deviation := float64(s.Mean()), float64(s.Deviation())
		if s.Samples() == 0 {
			least = 0
		}
		if !(mean >= least*(1-1e-6)-1e-6 && mean <= most*(1+1e-6)+1e-6) || !(deviation >= 0) ||
			deviation > most*(1+1e-6)+1 {
			t.Fatalf("unexpected mean %v ± %v of samples between %v and %v", mean, deviation, least, most)
		}
	})
}

func TestShrink(t *testing.T) {
	for _, tc := range []struct {
		mean, n, prior, weight, want float64
	}{
		{50, 0, 10, 3, 10}, {50, 1, 10, 3, 20}, {50, 3, 10, 3, 30}, {50, 1e6, 10, 3, 50}, {0, 0, 7, 0, 7},
	} {
		if got := energy.Shrink(energy.Watts(tc.mean), tc.n, energy.Watts(tc.prior),
			tc.weight); math.Abs(float64(got)-tc.want) > 1e-3 {
			t.Errorf("Shrink(%+v) = %v", tc, got)
		}
	}
}

func TestSmoothedIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(energy.Smoothed{}); size > 64 {
		t.Errorf("size of Smoothed = %d bytes, want at most 64", size)
	}
}
