package oracle

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Eta returns the share of what could be saved that a policy saved: the sum of baseline less policy, over the sum of
// baseline less optimum. It is a ratio of sums, so that what had little to save says little. NaN where nothing could be
// saved.
//
// Each of the three has an element for each unit of the comparison, mostly the start of a run.
func Eta(baseline, policy, optimum []float64) float64 {
	saved, possible := 0.0, 0.0
	for i := range baseline {
		saved += baseline[i] - policy[i]
		possible += baseline[i] - optimum[i]
	}
	return ratio(saved, possible, baseline)
}

// EtaInterval returns between which values [Eta] lies in 95 % of resamples, each of which draws as many elements as there
// are, with replacement. The same seed gives the same interval. It is NaN for fewer than two elements.
func EtaInterval(baseline, policy, optimum []float64, resamples int, seed uint64) (low, high float64) {
	n := len(baseline)
	if n < 2 || resamples < 1 {
		return math.NaN(), math.NaN()
	}
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	etas := make([]float64, 0, resamples)
	for range resamples {
		saved, possible := 0.0, 0.0
		for range n {
			i := r.IntN(n)
			saved += baseline[i] - policy[i]
			possible += baseline[i] - optimum[i]
		}
		if eta := ratio(saved, possible, baseline); !math.IsNaN(eta) {
			etas = append(etas, eta)
		}
	}
	if len(etas) == 0 {
		return math.NaN(), math.NaN()
	}
	slices.Sort(etas)
	return quantile(etas, 0.025), quantile(etas, 0.975)
}

// ratio is NaN where the possible saving is but the rounding error of the sums.
func ratio(saved, possible float64, baseline []float64) float64 {
	scale := 0.0
	for _, b := range baseline {
		scale += math.Abs(b)
	}
	if possible <= 1e-12*scale {
		return math.NaN()
	}
	return saved / possible
}

// quantile interpolates between sorted values.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
