package forecast

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/kubenergy/kubenergy/grid"
)

// The models that are learnt, as forecasts name them.
const (
	History     = "history" // from the intensity and the calendar alone
	WithWeather = "weather" // with a forecast of the weather
)

const (
	// LearntHorizon is how far ahead learnt models look at most.
	LearntHorizon = 96 * time.Hour

	// LeastHistory is how much history a model needs to learn from: with less, Best does better.
	LeastHistory = 60 * day
)

// LearnOptions say how to learn. The zero value learns to forecast 96 hours at any hour.
type LearnOptions struct {
	Horizon time.Duration // 0: LearntHorizon
	// Daily says that forecasts will be issued once a day, at the hour at which the training ends: the training leans
	// to it.
	Daily bool
	Seed  uint64 // of the samples that trees are grown on
}

func (o LearnOptions) hours() (int, error) {
	switch {
	case o.Horizon == 0:
		return int(LearntHorizon.Hours()), nil
	case o.Horizon < 0 || o.Horizon > LearntHorizon || o.Horizon%time.Hour != 0:
		return 0, fmt.Errorf("horizon is %v: want full hours, at most %v", o.Horizon, LearntHorizon)
	}
	return int(o.Horizon.Hours()), nil
}

// ErrShort says that the history is too short to learn from.
var ErrShort = errors.New("too little history to learn from")

// Learnt is a model that was learnt from a history. It is immutable.
type Learnt struct {
	name    string
	horizon int // hours
	shape   *structure
	leads   *regressions
	trees   trees
	levels  levelRegressions
	least   float64 // logarithms that are believed
	most    float64
	until   time.Time
}

// Learn learns a model from what of the history begins before until, and from the weather if it is not nil. An hour of
// history is what its step says, or the mean of its steps.
//
// The model has three tiers: a ridge regression of the logarithm on calendar and weather; for each hour ahead a ridge
// regression of what is left, on its own past; and boosted trees on what is left of that, for the percentage error.
// Without weather, what they say is averaged with a second opinion, a regression of the intensity itself.
func Learn(history *grid.Series, weather *Weather, until time.Time, o LearnOptions) (*Learnt, error) {
	horizon, err := o.hours()
	if err != nil {
		return nil, err
	}
	if history == nil {
		return nil, ErrShort
	}
	r, err := newRecord(history, weather, horizon)
	if err != nil {
		return nil, err
	}
	return learn(r, r.hourOf(until), horizon, o)
}

// learn learns from the hours of the record before number until.
func learn(r *record, until, horizon int, o LearnOptions) (*Learnt, error) {
	if until = min(until, len(r.values)); until < int(LeastHistory/time.Hour) {
		return nil, fmt.Errorf("%w: %d hours, want %d", ErrShort, max(until, 0), int(LeastHistory/time.Hour))
	}
	known := *r
	known.values = r.values[:until]
	known.days = r.days[:min(until+horizon, len(r.days))]
	l := &Learnt{name: History, horizon: horizon, until: r.timeOf(until), least: math.Inf(1), most: math.Inf(-1)}
	if r.weather != nil {
		l.name = WithWeather
	}
	var err error
	if l.shape, err = newStructure(&known, until); err != nil {
		return nil, err
	}
	v := newView(&known, l.shape)
	for _, y := range v.logs.values {
		l.least, l.most = min(l.least, y-math.Ln2), max(l.most, y+math.Ln2)
	}
	origins := trainingOrigins(until, o.Daily)
	if l.leads, err = v.regress(origins, horizon); err != nil {
		return nil, err
	}
	if r.weather == nil {
		if l.levels, err = v.regressLevels(origins, horizon); err != nil {
			return nil, err
		}
	}
	l.trees = v.boost(l.leads, until, horizon, o)
	return l, nil
}

// trainingOrigins returns the moments to learn to forecast from: some of each time of day or, for forecasts that are
// issued daily, those of that time and some others.
func trainingOrigins(until int, daily bool) *origins {
	o := &origins{from: reach, until: until}
	// A stride that has no divisor in common with a day or a week, so that all times of both come up.
	stride := 1
	switch {
	case daily:
		stride = 9
	case until-reach > 5000:
		stride = 5
	}
	for t := reach; t < until; t++ {
		if t%stride == 0 || daily && (until-t)%24 == 0 {
			o.hours = append(o.hours, t)
		}
	}
	return o
}

// boost fits the third tier on pairs of origin and lead, drawn at random.
func (v *view) boost(leads *regressions, until, horizon int, o LearnOptions) trees {
	random := rand.New(rand.NewPCG(o.Seed, 0x6b75)) //nolint:gosec // the same seed must give the same trees
	all := &origins{from: reach, until: until}
	span := until - horizon - reach
	width := v.width + 1
	n := min(treePairs, span*horizon/2)
	rows, targets, scores := make([]float64, n*width), make([]float64, n), make([]float64, n)
	for i := range n {
		h := random.IntN(horizon)
		t := reach + random.IntN(span)
		if o.Daily && i%2 == 0 {
			t += (until - t) % 24
			if t+h >= until {
				t -= 24
			}
		}
		row := rows[i*width : (i+1)*width]
		v.features(row, t, h)
		f := leads.leads[h].withoutFold[all.fold(t)]
		scores[i] = dot(f, row[:v.width])
		row[0], row[v.width] = float64(h), scores[i]
		targets[i] = v.residuals.values[t+h]
	}
	return newExamples(rows, width, targets, scores).boost(random)
}

// expect returns the logarithm, less the mean, that is expected h hours after origin t. x is scratch.
func (l *Learnt) expect(v *view, x []float64, t, h int) float64 {
	v.features(x, t, h)
	f := dot(l.leads.leads[h].full, x[:v.width])
	x[0], x[v.width] = float64(h), f
	f += treeWeight * l.trees.of(x)
	return min(max(v.expected[t+h]+f, l.least), l.most)
}

// of turns a logarithm, less the mean, into an intensity.
func (l *Learnt) of(y float64) float64 { return math.Exp(l.shape.mean + y) }

// at returns the intensity that is forecast for h hours after origin t. x is scratch.
func (l *Learnt) at(v *view, x []float64, t, h int) float64 {
	y := l.of(l.expect(v, x, t, h))
	if l.levels == nil {
		return y
	}
	var scratch [mostLevelFeatures]float64
	level := dot(l.levels[h], v.levelFeatures(scratch[:0], t, h))
	level = min(max(level, l.of(l.least)), l.of(l.most))
	return y + levelWeight*(level-y)
}

// Forecast forecasts what comes after the part of the history that begins before from. Weather must be given if the
// model was learnt with it; up to 12 hours of it beyond the horizon are looked at.
func (l *Learnt) Forecast(history *grid.Series, weather *Weather, from time.Time) (grid.Forecast, error) {
	if (weather != nil) != (l.name == WithWeather) {
		return grid.Forecast{}, fmt.Errorf("model %q and weather do not go together", l.name)
	}
	if history == nil {
		return grid.Forecast{}, ErrShort
	}
	r, err := newRecord(history, weather, l.horizon)
	if err != nil {
		return grid.Forecast{}, err
	}
	t := r.hourOf(from)
	switch {
	case t < reach:
		return grid.Forecast{}, fmt.Errorf("%w: %d hours before %s, want %d", ErrShort, max(t, 0),
			from.Format(time.RFC3339), reach)
	case t > len(r.values):
		return grid.Forecast{}, fmt.Errorf("history ends at %s, before %s",
			r.timeOf(len(r.values)).Format(time.RFC3339), from.Format(time.RFC3339))
	}
	r.values, r.days = r.values[:t], r.days[:t+l.horizon]
	v := newView(r, l.shape)
	x := make([]float64, v.width+1)
	mid, low, high := make([]float64, l.horizon), make([]float64, l.horizon), make([]float64, l.horizon)
	for h := range mid {
		mid[h] = l.at(v, x, t, h)
		hour := v.hourOfDay(t + h)
		low[h] = min(1, math.Exp(l.leads.margins.at(h, hour, .1))) * mid[h]
		high[h] = max(1, math.Exp(l.leads.margins.at(h, hour, .9))) * mid[h]
	}
	f := grid.Forecast{IssuedAt: from, Model: l.name}
	for i, values := range [][]float64{mid, low, high} {
		s, err := grid.NewSeries(r.timeOf(t), time.Hour, values)
		if err != nil {
			return grid.Forecast{}, fmt.Errorf("forecasting with %s: %w", l.name, err)
		}
		*[]**grid.Series{&f.Series, &f.Low, &f.High}[i] = s
	}
	return f, nil
}

// Name returns the name of the model.
func (l *Learnt) Name() string { return l.name }

// Until returns the first hour that was not learnt from.
func (l *Learnt) Until() time.Time { return l.until }
