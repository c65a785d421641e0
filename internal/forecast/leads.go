package forecast

import (
	"fmt"
	"math"
	"slices"
)

// regressions are the second stage of a model: a ridge regression of the residual for each lead.
type regressions struct {
	leads     []regression // by hours ahead
	penalties []float64    // by day ahead, per origin of the training
	margins   margins
	priors    []prior // by day ahead
}

// margins are quantiles of the training errors, as logarithms, in equal steps from the smallest to the largest
// error. For the first lead group they are separate for each forecast hour of the day, because noon may be much
// harder to forecast than the night. For longer leads, the hour of the day matters less.
type margins struct {
	next   [24][]float64               // first lead group, by hour of the day in UTC
	groups [len(groupStarts)][]float64 // by lead group, over all hours of the day
}

// marginSteps is the number of steps between quantiles.
const marginSteps = 400

// regression contains the coefficients of one lead, trained on all origins, and on all origins outside of one fold.
type regression struct {
	full        []float64
	withoutFold [folds][]float64
}

// tried contains the penalties that are compared by cross-validation, for each day ahead. Long histories require a
// small penalty, a single year requires a large one, because yearly patterns cannot be learned from it.
var tried = [...]float64{.003, .01, .03, .1, .3, 1}

// origins are the origins of the training forecasts. A fold is one fifth of the time.
type origins struct {
	hours []int
	from  int // first hour of the first fold
	until int // end of the last fold
}

func (o *origins) fold(t int) int { return (t - o.from) * folds / (o.until - o.from) }

// before returns the origins with a target within the training, where the target is h hours later.
func (o *origins) before(h int) []int {
	n := len(o.hours)
	for n > 0 && o.hours[n-1]+h >= o.until {
		n--
	}
	return o.hours[:n]
}

// lesson is the regression problem of one lead.
type lesson struct {
	rows     []float64 // standardized features, with the target as the last column
	width    int       // number of columns
	standard standard
	starts   [folds + 1]int // first row of each fold
	all      []float64      // Gram matrix of all rows
	parts    [folds][]float64
}

// prepare builds the regression problem of lead h.
func (v *view) prepare(o *origins, h int) *lesson {
	hours := o.before(h)
	p := v.width
	l := &lesson{width: p + 1}
	l.rows = make([]float64, len(hours)*l.width)
	for i, t := range hours {
		row := l.rows[i*l.width : (i+1)*l.width]
		v.features(row, t, h)
		row[p] = v.residuals.values[t+h]
		for f := o.fold(t); f < folds; f++ {
			l.starts[f+1] = i + 1
		}
	}
	l.standard = standardise(l.rows, l.width, p)
	l.all = make([]float64, l.width*l.width)
	for f := range folds {
		l.parts[f] = make([]float64, l.width*l.width)
		gram(l.parts[f], l.fold(f), l.width)
		add(l.all, l.parts[f])
	}
	return l
}

func (l *lesson) fold(f int) []float64 {
	return l.rows[l.starts[f]*l.width : l.starts[f+1]*l.width]
}

// count returns the number of rows.
func (l *lesson) count() int { return l.starts[folds] }

// without solves the problem without one fold.
func (l *lesson) without(f int, penalty float64, s *solver, scratch []float64) ([]float64, error) {
	for i, v := range l.all {
		scratch[i] = v - l.parts[f][i]
	}
	n := l.count() - (l.starts[f+1] - l.starts[f])
	return s.solve(scratch, penalty*float64(n))
}

// loss returns the sum of the percentage errors of coefficients b in a fold.
func (l *lesson) loss(f int, b []float64) float64 {
	sum := 0.0
	rows := l.fold(f)
	for i := 0; i < len(rows); i += l.width {
		sum += math.Abs(1 - math.Exp(dot(b, rows[i:i+l.width-1])-rows[i+l.width-1]))
	}
	return sum
}

// choose returns the penalty with the lowest cross-validation error, for leads distributed over a day.
func (v *view) choose(o *origins, day, horizon int) (float64, error) {
	var losses [len(tried)]float64
	s := newSolver(v.width)
	scratch := make([]float64, (v.width+1)*(v.width+1))
	for i, probe := range []int{2, 8, 14, 20} {
		lead := day*24 + probe
		if lead >= horizon {
			if i > 0 {
				break
			}
			lead = horizon - 1
		}
		l := v.prepare(o, lead)
		for i, penalty := range tried {
			for f := range folds {
				b, err := l.without(f, penalty, s, scratch)
				if err != nil {
					return 0, err
				}
				losses[i] += l.loss(f, b)
			}
		}
	}
	best := 0
	for i, loss := range losses {
		if loss < losses[best] {
			best = i
		}
	}
	return tried[best], nil
}

// regress fits the second stage.
func (v *view) regress(o *origins, horizon, processors int) (*regressions, error) {
	r := &regressions{leads: make([]regression, horizon), penalties: make([]float64, (horizon+23)/24)}
	err := inParallel(processors, len(r.penalties), func(day int) error {
		var err error
		r.penalties[day], err = v.choose(o, day, horizon)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("choosing penalties: %w", err)
	}
	errs := make([][]timed, horizon)
	err = inParallel(processors, horizon, func(h int) error {
		l := v.prepare(o, h)
		s := newSolver(v.width)
		scratch := make([]float64, len(l.all))
		penalty := r.penalties[h/24]
		b, err := s.solve(l.all, penalty*float64(l.count()))
		if err != nil {
			return err
		}
		var parts [folds][]float64
		for f := range parts {
			if parts[f], err = l.without(f, penalty, s, scratch); err != nil {
				return err
			}
		}
		errs[h] = l.errors(parts, o, h, v.days)
		r.leads[h].full = l.standard.raw(b)
		for f := range parts {
			r.leads[h].withoutFold[f] = l.standard.raw(parts[f])
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("fitting a lead: %w", err)
	}
	r.spread(errs)
	for d := range r.penalties {
		r.priors = append(r.priors, newPrior(errs[d*24:min((d+1)*24, horizon)]))
	}
	return r, nil
}

// timed is an error and the hour of the day, in UTC, of the forecast value.
type timed struct {
	hour int
	err  float64
}

// errors returns the cross-validation errors over the last year.
func (l *lesson) errors(parts [folds][]float64, o *origins, h int, days []calendar) []timed {
	var errs []timed
	hours := o.before(h)
	p := l.width - 1
	for f := range parts {
		for i := l.starts[f]; i < l.starts[f+1]; i++ {
			if hours[i]+h < o.until-365*24 {
				continue
			}
			row := l.rows[i*l.width : (i+1)*l.width]
			errs = append(errs, timed{days[hours[i]+h].hour, row[p] - dot(parts[f], row[:p])})
		}
	}
	return errs
}

// spread computes the margins from the errors by lead. Each hour of the day includes the errors of the neighboring
// hours.
func (r *regressions) spread(errs [][]timed) {
	for h, of := range errs {
		g := groupOf(float64(h))
		for _, e := range of {
			r.margins.groups[g] = append(r.margins.groups[g], e.err)
			if g == 0 {
				for near := e.hour + 23; near <= e.hour+25; near++ {
					r.margins.next[near%24] = append(r.margins.next[near%24], e.err)
				}
			}
		}
	}
	for _, all := range [][][]float64{r.margins.next[:], r.margins.groups[:]} {
		for i := range all {
			if len(all[i]) == 0 {
				continue
			}
			slices.Sort(all[i])
			steps := make([]float64, marginSteps+1)
			for k := range steps {
				steps[k] = quantile(all[i], float64(k)/marginSteps)
			}
			all[i] = steps
		}
	}
}

// at returns a quantile of the errors for a lead of h hours and an hour of the day in UTC.
func (m *margins) at(h, hourOfDay int, q float64) float64 {
	g := groupOf(float64(h))
	errs := m.groups[g]
	if g == 0 && len(m.next[hourOfDay]) > 0 {
		errs = m.next[hourOfDay]
	}
	if len(errs) == 0 {
		return 0
	}
	return quantile(errs, q)
}
