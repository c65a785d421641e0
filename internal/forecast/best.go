package forecast

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

const (
	// MaxHorizon is the maximum horizon of Best.
	MaxHorizon = 14 * day

	// memory is the length of the history that is used. Older errors have little relevance.
	memory = 35 * day

	// maxGap is the maximum age of the last known value.
	maxGap = day

	// probesPerDay is the number of evaluated leads per day for persistence. The errors of the other models do not
	// depend on the lead within a day.
	probesPerDay = 8

	// margin is the fraction of the blend's error below which another model is chosen. With two weeks of history,
	// the best model is often best by chance, and the blend is rarely bad. Without a margin, choosing a model is
	// worse than always using the blend.
	margin = 0.95

	// errorsPerDay is the number of errors per day that are used for the percentiles.
	errorsPerDay = 48
)

// groupStarts contains the starts of the lead groups in hours. Each group has separate percentiles.
var groupStarts = [...]int{0, 6, 24, 48}

// Best forecasts a signal from its own history. It uses the model with the lowest error on that history over an
// equally long horizon. Values that start at from or later are ignored. The first step of the forecast contains
// from, and has the known value if the history contains it. The percentiles are computed from the errors of the
// model on the history, as ratios if the signal stays clearly above zero, and as differences otherwise. The history
// must cover at least 24 hours. Percentiles are omitted if it does not allow at least 6 further hours to be tested.
// If the history is too short to test some of the days ahead, they use the percentiles of the longest lead that was
// tested.
func Best(history *grid.Series, from time.Time, horizon time.Duration) (grid.Forecast, error) {
	switch {
	case history == nil:
		return grid.Forecast{}, errors.New("no history to forecast from")
	case horizon <= 0 || horizon > MaxHorizon:
		return grid.Forecast{}, fmt.Errorf("horizon is %v: want a positive value of at most %v", horizon, MaxHorizon)
	}
	p, err := newPast(history, from, memory)
	if err != nil {
		return grid.Forecast{}, err
	}
	end := p.start.Add(time.Duration(len(p.values)) * p.step)
	if gap := from.Sub(end); gap > maxGap {
		return grid.Forecast{}, fmt.Errorf("history ends at %s, %v before %s: want at most %v",
			end.Format(time.RFC3339), gap, from.Format(time.RFC3339), maxGap)
	}
	first := int(from.Sub(p.start) / p.step)
	leads := int((from.Add(horizon).Sub(p.start)+p.step-1)/p.step) - len(p.values)
	t := newTest(p)
	chosen := t.choose(leads)
	return p.forecast(chosen, t.spreads(chosen, leads), from, first, leads)
}

// forecast returns the forecast of model m from value number first to lead number leads.
func (p *past) forecast(m model, spreads []spread, from time.Time, first, leads int) (grid.Forecast, error) {
	known := len(p.values)
	count := known + leads - first
	all := make([]float64, 3*count)
	mid, low, high := all[:count], all[count:2*count], all[2*count:]
	perHour := float64(p.perDay) / 24
	for i := range mid {
		lead := first + i - known
		if lead < 0 {
			mid[i] = p.values[first+i]
			low[i], high[i] = mid[i], mid[i]
			continue
		}
		mid[i] = p.at(m, known, lead)
		if spreads != nil {
			low[i], high[i] = spreads[groupOf(float64(lead)/perHour)].around(mid[i])
		}
	}
	f := grid.Forecast{IssuedAt: from, Model: names[m]}
	start := p.start.Add(time.Duration(first) * p.step)
	var err, errLow, errHigh error
	f.Series, err = grid.NewSeries(start, p.step, mid)
	if spreads != nil {
		f.Low, errLow = grid.NewSeries(start, p.step, low)
		f.High, errHigh = grid.NewSeries(start, p.step, high)
	}
	if err = cmp.Or(err, errLow, errHigh); err != nil {
		return grid.Forecast{}, fmt.Errorf("forecasting with %s: %w", names[m], err)
	}
	return f, nil
}

func groupOf(hours float64) int {
	g := len(groupStarts) - 1
	for hours < float64(groupStarts[g]) {
		g--
	}
	return g
}

// test evaluates the models on the history. Except for persistence, the forecast for a given time does not depend
// on the time of day of its origin. Therefore testing all origins takes no longer than testing once per day of
// lead.
type test struct {
	*past
	ratio       bool // whether errors are ratios
	nonNegative bool
}

// clearOfZero is the minimum value, as a fraction of the mean, of a series with errors measured as ratios. Ratios
// are not meaningful for prices near zero.
const clearOfZero = 0.02

func newTest(p *past) *test {
	least, sum := math.Inf(1), 0.0
	for _, v := range p.values {
		least, sum = min(least, v), sum+v
	}
	return &test{past: p, ratio: least > clearOfZero*sum/float64(len(p.values)), nonNegative: least >= 0}
}

// choose returns the model with the lowest mean error over the leads.
func (t *test) choose(leads int) model {
	var scores [models]float64
	for d := 0; d*t.perDay < leads; d++ {
		first := t.firstFair(d)
		if first >= len(t.values) {
			break // longer leads cannot be tested either
		}
		weight := float64(min(t.perDay, leads-d*t.perDay)) / float64(t.perDay)
		for m, e := range t.meanErrors(d, first) {
			scores[m] += weight * e
		}
	}
	best := blend
	for m := range scores {
		if scores[m] < margin*scores[blend] && scores[m] < scores[best] {
			best = model(m)
		}
	}
	return best
}

// firstFair returns the first value on which the models are compared d days ahead. The mean for this value covers
// the same number of days as at present, if at least one day then remains for the comparison.
func (t *test) firstFair(d int) int {
	days := min(week, len(t.values)/t.perDay)
	if fair := (d + days) * t.perDay; fair+t.perDay <= len(t.values) {
		return fair
	}
	return (d + 1) * t.perDay
}

// meanErrors returns the mean absolute error of each model d days ahead, over all values from number first on.
func (t *test) meanErrors(d, first int) [models]float64 {
	var sums [models]float64
	back := (d + 1) * t.perDay
	for i := first; i < len(t.values); i++ {
		y, a, b := t.values[i], t.values[i-back], t.means[i-back]
		weight := t.weight(y)
		sums[yesterday] += weight * math.Abs(y-a)
		sums[weekMean] += weight * math.Abs(y-b)
		sums[blend] += weight * math.Abs(y-(a+b)/2)
	}
	n := float64(len(t.values) - first)
	for m := range sums {
		sums[m] /= n
	}
	sums[persistence] = t.persistenceError(d, first)
	return sums
}

func (t *test) persistenceError(d, first int) float64 {
	sum, n := 0.0, 0
	for i := first; i < len(t.values); i += t.perDay / 24 {
		for lead := range t.probes(d) {
			if known := i - lead; known >= 1 {
				sum += t.weight(t.values[i]) * math.Abs(t.values[i]-t.values[known-1])
				n++
			}
		}
	}
	return sum / float64(max(n, 1))
}

// probes yields leads distributed over day d.
func (t *test) probes(d int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for j := range probesPerDay {
			if !yield(d*t.perDay + (2*j+1)*t.perDay/(2*probesPerDay)) {
				return
			}
		}
	}
}

func (t *test) weight(y float64) float64 {
	if t.ratio {
		return 1 / y
	}
	return 1
}

// spread contains the distance of the 10th and the 90th percentile from the forecast.
type spread struct {
	low, high   float64 // logarithms of ratios, or differences
	ratio       bool
	nonNegative bool
}

func (s spread) around(v float64) (low, high float64) {
	switch {
	case s.ratio:
		low, high = v*math.Exp(s.low), v*math.Exp(s.high)
	default:
		low, high = v+s.low, v+s.high
	}
	if s.nonNegative {
		low = max(0, low)
	}
	return min(low, v), max(high, v)
}

// spreads returns the spread of the errors of model m for each lead group, or nil if there are not enough errors.
func (t *test) spreads(m model, leads int) []spread {
	result := make([]spread, len(groupStarts))
	have := 0
	days := float64(len(t.values)-t.perDay) / float64(t.perDay)
	for g := range groupStarts {
		if g == 1 && m != persistence {
			result[g], have = result[0], 2 // same errors, because the lead within a day makes no difference
			continue
		}
		errs := t.errors(m, g, leads)
		if len(errs) < errorsPerDay/4 && len(errs) < t.perDay/4 {
			break
		}
		slices.Sort(errs)
		// A new error may exceed all known ones, so the percentiles of a small sample are extended. The errors of
		// one day are correlated, so the sample size is the number of days.
		high := min(1, 0.9*(1+1/days))
		result[g] = spread{
			low: quantile(errs, 1-high), high: quantile(errs, high), ratio: t.ratio, nonNegative: t.nonNegative,
		}
		have++
	}
	if have == 0 {
		return nil
	}
	for g := have; g < len(result); g++ {
		result[g] = result[have-1]
	}
	return result
}

// errors returns the errors of model m in the lead group, for all values of the history that can be tested.
func (t *test) errors(m model, group, leads int) []float64 {
	from := groupStarts[group] * t.perDay / 24
	if from >= leads {
		return nil
	}
	stride := max(1, t.perDay/errorsPerDay)
	until := leads
	if group+1 < len(groupStarts) {
		until = min(leads, groupStarts[group+1]*t.perDay/24)
	}
	errs := make([]float64, 0, len(t.values)/stride+1)
	for d := from / t.perDay; d*t.perDay < until; d++ {
		for i := (d + 1) * t.perDay; i < len(t.values); i += stride {
			if m != persistence {
				errs = append(errs, t.err(m, i, d*t.perDay))
				continue
			}
			for lead := range t.probes(d) {
				if lead >= from && lead < until && lead < i {
					errs = append(errs, t.err(m, i, lead))
				}
			}
		}
	}
	return errs
}

// err returns the error of model m for value i with a lead of the given number of steps.
func (t *test) err(m model, i, lead int) float64 {
	y, p := t.values[i], t.at(m, i-lead, lead)
	if t.ratio {
		return math.Log(y / p)
	}
	return y - p
}

// quantile returns the q-quantile of sorted values, with linear interpolation.
func quantile(sorted []float64, q float64) float64 {
	x := q * float64(len(sorted)-1)
	i := int(x)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (x-float64(i))*(sorted[i+1]-sorted[i])
}
