package forecast

import (
	"cmp"
	"math"
	"slices"
)

// Calibration shifts the forecasts of a day ahead by one factor, which would have made those of the last weeks, and
// what the training got wrong, least wrong. It does not change which hours are the cleaner ones.
const (
	calibrationDays  = 28
	calibrationTrust = 0.85 // of the factor
	calibrationMost  = 0.4  // logarithm
	priorWeight      = 7    // of the errors of the training, in days
)

// prior are quantiles of the errors of the training, one day ahead.
type prior []float64

const priorQuantiles = 48

// newPrior reduces the errors of a day, by lead, to quantiles.
func newPrior(errs [][]timed) prior {
	var all []float64
	for _, e := range slices.Concat(errs...) {
		all = append(all, e.err)
	}
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

// weighted is a ratio of the intensity to its forecast.
type weighted struct{ ratio, weight float64 }

// calibrateAll shifts forecasts, day by day ahead, by what the errors of those that were issued before at the same
// time of day say once all their hours of that day ahead are known.
func (iss *issuing) calibrateAll(origins []int, values []float32, terms []term) {
	raw := slices.Clone(values)
	place := make(map[int]int, len(origins))
	for i, t := range origins {
		place[t] = i
	}
	for _, term := range terms {
		_ = inParallel(term.end-term.first, func(j int) error {
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

// minWrong returns the logarithm of the factor c that minimises the sum of the percentage errors |1 - c/ratio|: the
// logarithm of the median of the ratios, weighted with the weights over the ratios.
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
