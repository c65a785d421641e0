package forecast

import (
	"cmp"
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Calibration multiplies the forecasts of a day ahead by a factor that would have minimized the errors of the last
// weeks, with the errors in the training as a prior. It does not change the order of the hours.
const (
	calibrationDays  = 28
	calibrationTrust = 0.85 // exponent of the factor
	calibrationMost  = 0.4  // maximum logarithm of the factor
	priorWeight      = 7    // weight of the training errors, in days
)

// prior contains quantiles of the training errors, one day ahead.
type prior []float64

const priorQuantiles = 48

// newPrior converts the errors of a day, by lead, to quantiles.
func newPrior(errs [][]timed) prior {
	all := sliceutil.Map(slices.Concat(errs...), func(e timed) float64 { return e.err })
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	p := make(prior, priorQuantiles)
	for i := range p {
		p[i] = quantile(all, (float64(i)+.5)/priorQuantiles)
	}
	return p
}

// weighted is a weighted ratio of an intensity to its forecast.
type weighted struct{ ratio, weight float64 }

// calibrateAll calibrates forecasts separately for each day ahead. It uses the errors of previous forecasts issued
// at the same time of day, once all hours of that day ahead are known.
func (iss *issuing) calibrateAll(origins []int, values []float32, terms []term) {
	raw := slices.Clone(values)
	place := sliceutil.Places(origins, func(t *int) int { return *t })
	for _, term := range terms {
		_ = inParallel(iss.processors, term.end-term.first, func(j int) error {
			i := term.first + j
			for d := range term.prior {
				first, end := d*24, min((d+1)*24, iss.horizon)
				factor := float32(math.Exp(iss.shift(raw, place, origins[i], d, term.prior[d])))
				for h := first; h < end; h++ {
					values[i*iss.horizon+h] *= factor
				}
			}
			return nil
		})
	}
}

// shift returns the logarithm of the factor for day d ahead at origin t.
func (iss *issuing) shift(raw []float32, place map[int]int, t, d int, p prior) float64 {
	var seen []weighted
	for back := d + 1; back <= d+calibrationDays; back++ {
		i, issued := place[t-24*back]
		if !issued {
			continue
		}
		for h := d * 24; h < min((d+1)*24, iss.horizon); h += 2 {
			if y := iss.values[t-24*back+h]; y > 0 {
				seen = append(seen, weighted{y / float64(raw[i*iss.horizon+h]), 1. / 12})
			}
		}
	}
	for _, e := range p {
		seen = append(seen, weighted{math.Exp(e), priorWeight / float64(len(p))})
	}
	return calibrationTrust * minWrong(seen)
}

// minWrong returns the logarithm of the factor c that minimizes the sum of the percentage errors |1 - c/ratio|.
// This is the logarithm of the weighted median of the ratios, where each weight is divided by its ratio.
func minWrong(seen []weighted) float64 {
	slices.SortFunc(seen, func(a, b weighted) int { return cmp.Compare(a.ratio, b.ratio) })
	total := 0.0
	for _, s := range seen {
		total += s.weight / s.ratio
	}
	sum := 0.0
	for _, s := range seen {
		if sum += s.weight / s.ratio; sum >= total/2 {
			return min(max(math.Log(s.ratio), -calibrationMost), calibrationMost)
		}
	}
	return 0
}
