package forecast

import (
	"math"
	"math/rand/v2"
	"time"
)

// Names of the trained models.
const (
	History     = "history" // from the intensity and the calendar only
	WithWeather = "weather" // with a forecast of the weather
)

const (
	// LearntHorizon is the maximum horizon of trained models.
	LearntHorizon = 96 * time.Hour

	// MinHistory is the minimum length of the history for training. With less data, Best is more accurate.
	MinHistory = 60 * day
)

// training contains the parameters for training a model.
type training struct {
	horizon int // in hours
	// daily means that forecasts are issued once a day, at the hour at which the training ends. The training then
	// emphasizes this hour.
	daily bool
	seed  uint64 // for sampling the training data of trees
	// processors is the maximum number of processors that are used concurrently. 0 means all.
	processors int
}

// learnt is a model that has been trained on a history. It is immutable.
//
// It has three stages: a ridge regression of the logarithm on calendar and weather, a ridge regression of the
// residual on its own past for each hour ahead, and boosted trees for the remaining percentage error. Without
// weather, the result is averaged with a second estimate, a regression of the intensity itself.
type learnt struct {
	shape  *structure
	leads  *regressions
	trees  trees
	levels levelRegressions // nil with weather
	least  float64          // limits of plausible logarithms
	most   float64
}

// learn trains a model on the hours of the record before number until.
func learn(r *record, until int, o training) (*learnt, error) {
	known := *r
	known.values = r.values[:until]
	known.days = r.days[:min(until+o.horizon, len(r.days))]
	l := &learnt{least: math.Inf(1), most: math.Inf(-1)}
	var err error
	if l.shape, err = newStructure(&known, until); err != nil {
		return nil, err
	}
	v := newView(&known, l.shape)
	for _, y := range v.logs.values {
		l.least, l.most = min(l.least, y-math.Ln2), max(l.most, y+math.Ln2)
	}
	origins := trainingOrigins(until, o.daily)
	if l.leads, err = v.regress(origins, o.horizon, o.processors); err != nil {
		return nil, err
	}
	if r.weather == nil {
		if l.levels, err = v.regressLevels(origins, o.horizon, o.processors); err != nil {
			return nil, err
		}
	}
	l.trees = v.boost(l.leads, until, o)
	return l, nil
}

// trainingOrigins returns the origins of the training forecasts, distributed over all times of the day. For
// forecasts that are issued daily, it returns all origins at that time and some others.
func trainingOrigins(until int, daily bool) *origins {
	o := &origins{from: reach, until: until}
	// The stride is coprime to the hours of a day and of a week, so that all times of both occur.
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

// boost fits the third stage on randomly sampled pairs of origin and lead.
func (v *view) boost(leads *regressions, until int, o training) trees {
	random := rand.New(rand.NewPCG(o.seed, 0x6b75)) //nolint:gosec // the same seed must give the same trees
	all := &origins{from: reach, until: until}
	span := until - o.horizon - reach
	width := v.width + 1
	n := min(treePairs, span*o.horizon/2)
	rows, targets, scores := make([]float64, n*width), make([]float64, n), make([]float64, n)
	for i := range n {
		h := random.IntN(o.horizon)
		t := reach + random.IntN(span)
		if o.daily && i%2 == 0 {
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

// expect returns the expected logarithm, relative to the mean, h hours after origin t. x is a buffer.
func (l *learnt) expect(v *view, x []float64, t, h int) float64 {
	v.features(x, t, h)
	f := dot(l.leads.leads[h].full, x[:v.width])
	x[0], x[v.width] = float64(h), f
	f += treeWeight * l.trees.of(x)
	return min(max(v.expected[t+h]+f, l.least), l.most)
}

// of converts a logarithm, relative to the mean, to an intensity.
func (l *learnt) of(y float64) float64 { return math.Exp(l.shape.mean + y) }

// at returns the forecast intensity h hours after origin t. x is a buffer.
func (l *learnt) at(v *view, x []float64, t, h int) float64 {
	y := l.of(l.expect(v, x, t, h))
	if l.levels == nil {
		return y
	}
	var scratch [maxLevelFeatures]float64
	level := dot(l.levels[h], v.levelFeatures(scratch[:0], t, h))
	level = min(max(level, l.of(l.least)), l.of(l.most))
	return y + levelWeight*(level-y)
}
