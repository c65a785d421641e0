package report

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

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
	medians, drawn := make([]float64, mostResamples), make([]float64, len(ratios))
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
		Low:    between(medians, lowTail), High: between(medians, highTail), Pairs: len(ratios),
	}
}

// String writes the ratio for people.
func (r Ratio) String() string {
	return fmt.Sprintf("%.3f (95 %%: %.3f to %.3f, %d pairs)", r.Median, r.Low, r.High, r.Pairs)
}
