// Package paired evaluates paired benchmarks, which measure the same work with and without a feature in turn.
package paired

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

const resamples = 2000

// Ratio is the median of the ratios of paired measurements, with its 95 % confidence interval.
type Ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Pairs  int     `json:"pairs"`
}

// MedianOf returns the median of ratios and its bootstrap confidence interval, which is computed from samples drawn
// with replacement. ratios must not be empty.
func MedianOf(ratios []float64, seed uint64) Ratio {
	r := rand.New(rand.NewPCG(seed, uint64(len(ratios))))
	medians, drawn := make([]float64, resamples), make([]float64, len(ratios))
	for i := range medians {
		for k := range drawn {
			drawn[k] = ratios[r.IntN(len(ratios))]
		}
		slices.Sort(drawn)
		medians[i] = between(drawn, 0.5)
	}
	slices.Sort(medians)
	return Ratio{
		Median: between(slices.Sorted(slices.Values(ratios)), 0.5),
		Low:    between(medians, 0.025), High: between(medians, 0.975), Pairs: len(ratios),
	}
}

// Exceeds reports whether the complete interval is above limit. Benchmarks use it instead of comparing the median,
// because the median exceeds the true value in half of all runs.
func (r Ratio) Exceeds(limit float64) bool { return r.Low > limit }

// FallsBelow reports whether the complete interval is below limit.
func (r Ratio) FallsBelow(limit float64) bool { return r.High < limit }

// String formats the ratio for humans.
func (r Ratio) String() string {
	return fmt.Sprintf("%.3f (95 %%: %.3f to %.3f, %d pairs)", r.Median, r.Low, r.High, r.Pairs)
}

// between returns the quantile p of sorted values with linear interpolation.
func between(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := min(int(math.Floor(at)), max(0, len(sorted)-2))
	return sorted[i] + (at-float64(i))*(sorted[min(i+1, len(sorted)-1)]-sorted[i])
}
