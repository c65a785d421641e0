package paired_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kubenergy/kubenergy/test/paired"
)

// TestMedianOfCovers verifies that about 95 % of the intervals contain the true median. A bootstrap of few pairs
// yields slightly narrower intervals.
func TestMedianOfCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	const samples = 300
	held := 0
	for i := range samples {
		ratios := make([]float64, 12)
		for k := range ratios {
			ratios[k] = 0.97 + 0.05*rng.NormFloat64()
		}
		r := paired.MedianOf(ratios, uint64(i))
		if r.Low > r.Median || r.Median > r.High {
			t.Fatalf("%+v", r)
		}
		if r.Low <= 0.97 && 0.97 <= r.High {
			held++
		}
	}
	if share := float64(held) / samples; share < 0.88 || share > 0.99 {
		t.Errorf("interval contains the true median in a fraction of %.2f of all samples", share)
	}
}

// TestExceedsIsCertain verifies that a ratio at its limit rarely fails and that a ratio well above the limit fails.
// The samples are as noisy as benchmarks on a busy machine.
func TestExceedsIsCertain(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 7))
	const samples = 300
	failed := func(truth float64) (share float64) {
		for i := range samples {
			ratios := make([]float64, 12)
			for k := range ratios {
				ratios[k] = truth + 0.05*rng.NormFloat64()
			}
			r := paired.MedianOf(ratios, uint64(i))
			if r.Exceeds(1.02) {
				share += 1. / samples
			}
			if r.Exceeds(1.02) && r.FallsBelow(1.02) {
				t.Fatalf("ratio %v both exceeds and falls below the limit", r)
			}
		}
		return share
	}
	for truth, want := range map[float64][2]float64{1: {0, 0.01}, 1.02: {0, 0.07}, 1.10: {0.95, 1}} {
		if share := failed(truth); share < want[0] || share > want[1] {
			t.Errorf("ratio of %v exceeds 1.02 in a fraction of %.3f of all samples, want a fraction in %v",
				truth, share, want)
		}
	}
	// These values are from a run that failed when the median was compared.
	if r := (paired.Ratio{Median: 1.037, Low: 0.964, High: 1.121, Pairs: 30}); r.Exceeds(1.02) || r.FallsBelow(1.02) {
		t.Errorf("ratio %v exceeds or falls below the limit, want neither", r)
	}
}

func TestMedianOfIsRepeatable(t *testing.T) {
	ratios := []float64{0.9, 1.1, 1, 0.95}
	a, b := paired.MedianOf(ratios, 1), paired.MedianOf(ratios, 1)
	if a != b || a.Median != 0.975 || a.Pairs != 4 {
		t.Errorf("MedianOf() returned %+v and %+v for the same ratios", a, b)
	}
	if one := paired.MedianOf([]float64{2}, 1); one.Low != 2 || one.Median != 2 || one.High != 2 {
		t.Errorf("unexpected result of MedianOf() for one ratio: %+v", one)
	}
}
