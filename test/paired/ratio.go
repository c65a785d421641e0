// Package paired sums up what benchmarks measure in pairs: the same work with and without something, one after the
// other.
package paired

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

const resamples = 2000

// Ratio is the median of ratios, each of two things measured one after the other, and its interval of 95 %.
type Ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Pairs  int     `json:"pairs"`
}

// MedianOf returns the median of ratios. Its interval is that of medians over as many pairs drawn at random from
// these, with replacement. There must be at least one.
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

// Exceeds reports whether the ratio is above a limit for certain: all of its interval is. Benchmarks are judged by it
// and not by the median, which lies above its true value every other time.
func (r Ratio) Exceeds(limit float64) bool { return r.Low > limit }

// FallsBelow reports whether all of the interval is below a limit.
func (r Ratio) FallsBelow(limit float64) bool { return r.High < limit }

// String writes the ratio for people.
func (r Ratio) String() string {
	return fmt.Sprintf("%.3f (95 %%: %.3f to %.3f, %d pairs)", r.Median, r.Low, r.High, r.Pairs)
}

// between interpolates between sorted values.
func between(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := min(int(math.Floor(at)), max(0, len(sorted)-2))
	return sorted[i] + (at-float64(i))*(sorted[min(i+1, len(sorted)-1)]-sorted[i])
}
