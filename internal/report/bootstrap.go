package report

import (
	"math"
	"math/rand/v2"
	"slices"
)

// MinJobs is the minimum number of jobs needed to compute an interval.
const MinJobs = 10

// The percentiles of the 95 % interval, and the number of bootstrap resamples.
const (
	lowTail, highTail = 0.025, 0.975

	maxResamples = 2000
	fewResamples = 200
	maxDraws     = 20_000_000 // in all resamples together, which takes about a second
)

// total adds up differences. The interval is that of sums over the same number of jobs, drawn at random with
// replacement.
func total(all []Difference, seed uint64) (sum Difference) {
	for _, d := range all {
		sum.Used += d.Used
		sum.Baseline += d.Baseline
	}
	sum.Saved = sum.Baseline - sum.Used
	if len(all) < MinJobs {
		return sum
	}
	r := rand.New(rand.NewPCG(seed, uint64(len(all))))
	sums := make([]float64, min(maxResamples, max(fewResamples, maxDraws/len(all))))
	for i := range sums {
		for range all {
			sums[i] += all[r.IntN(len(all))].Saved
		}
	}
	slices.Sort(sums)
	sum.Low, sum.High = new(between(sums, lowTail)), new(between(sums, highTail))
	return sum
}

// between interpolates between sorted values. p is the quantile to compute.
func between(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := int(math.Floor(at))
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
