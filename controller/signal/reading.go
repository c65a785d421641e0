package signal

import (
	"math"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/forecast"
	"github.com/kubenergy/kubenergy/grid"
)

const (
	horizon    = 48 * time.Hour        // that a signal should be known ahead
	buildAhead = horizon + 2*time.Hour // so that it still is when the next answer comes
	nearEnough = horizon - 2*time.Hour // a source that knows as much needs no model of ours
	maxValues  = 2016                  // of a status
	bridging   = 3                     // steps without a value that do not end what a source says ahead
	tailSpan   = 24 * time.Hour        // for which a forecast is kept where there is no history to make a new one from
)

// reading is what is believed: an answer as a series from the present on, completed by a forecast.
type reading struct {
	start     time.Time
	step      time.Duration
	values    []float64
	low, high []float64 // percentiles; nil where they are not known for all
	asOf      time.Time // zero: it does not age
	issuedAt  time.Time // of the forecast
	quality   energy.Quality
	model     string // who forecast
}

// expired reports whether a reading is too old, or says nothing about now.
func (r *reading) expired(now time.Time, maxAge time.Duration) bool {
	return r == nil || now.Before(r.start.Add(-clockSkew)) || r.index(now) >= len(r.values) ||
		!r.asOf.IsZero() && now.Sub(r.asOf) > maxAge
}

// index returns the number of the value that holds at t.
func (r *reading) index(t time.Time) int { return max(0, int(t.Sub(r.start)/r.step)) }

// end returns when the reading ceases to be believed.
func (r *reading) end(maxAge time.Duration) time.Time {
	last := r.start.Add(time.Duration(len(r.values)) * r.step)
	if r.asOf.IsZero() || r.asOf.Add(maxAge).After(last) {
		return last
	}
	return r.asOf.Add(maxAge)
}

// read turns a checked answer into a reading: what the source itself knows ahead, and no more.
func read(c checked, now time.Time, source string) *reading {
	r := &reading{step: c.Step, asOf: c.IssuedAt, issuedAt: c.IssuedAt, model: c.Model, quality: energy.Measured}
	if c.Ageless {
		r.asOf, r.issuedAt = time.Time{}, now
	}
	if r.model == "" {
		r.model = source
	}
	if c.present.Estimated {
		r.quality = energy.Estimated
	}
	var offset time.Duration   // of the grid from the hour
	sole := len(c.Points) == 1 // it may be of any moment, and says nothing of the next hour
	switch {
	case sole:
		r.step = max(c.Step, soleStep)
	case r.step == 0:
		r.step = commonStep(c.Points)
	default:
		offset = time.Duration(c.Points[0].Time.UnixNano() % int64(r.step))
	}
	r.start = time.Unix(0, now.UnixNano()-(now.UnixNano()-int64(offset))%int64(r.step)).UTC()
	r.append(c.present)
	last, ranged := c.present, true
	for t := r.start.Add(r.step); !sole && t.Before(now.Add(buildAhead)) &&
		len(r.values) < maxValues; t = t.Add(r.step) {
		p, ok := c.at(t)
		if ok {
			last = p
		} else if !r.bridge(c, t) {
			break
		}
		r.append(last)
		ranged = ranged && last.hasRange()
	}
	if !ranged || len(r.values) == 1 {
		r.low, r.high = nil, nil
	}
	return r
}

// bridge reports whether a gap at t is short enough to be filled, of which the quality tells.
func (r *reading) bridge(c checked, t time.Time) bool {
	if !c.resumes(t) {
		return false
	}
	if r.quality == energy.Measured {
		r.quality = energy.Derived
	}
	return true
}

// resumes reports whether a gap at t is short: a point of the answer begins again within a few steps.
func (c *checked) resumes(t time.Time) bool {
	for range bridging {
		t = t.Add(c.Step)
		if _, ok := c.at(t); ok {
			return true
		}
	}
	return false
}

// append adds a value, and its percentiles or itself in place of them.
func (r *reading) append(p Point) {
	if !p.hasRange() {
		p.Low, p.High = p.Value, p.Value
	}
	r.values, r.low, r.high = append(r.values, p.Value), append(r.low, p.Low), append(r.high, p.High)
}

// commonStep returns the longest usual step on whose grid all points begin, a minute if there is none.
func commonStep(points []Point) time.Duration {
	for _, step := range []time.Duration{time.Hour, 30 * time.Minute, 15 * time.Minute, 5 * time.Minute} {
		fits := true
		for _, p := range points {
			fits = fits && p.Time.UnixNano()%int64(step) == 0
		}
		if fits {
			return step
		}
	}
	return minStep
}

// until returns the first instant that a reading does not know.
func (r *reading) until() time.Time { return r.start.Add(time.Duration(len(r.values)) * r.step) }

// complete adds a forecast where the source gave none, or one that is too short. before is what was believed of the
// source until now, or nil; curve is the zone's typical day, or nil.
func (r *reading) complete(h *history, before *reading, curve *forecast.Curve, now time.Time) {
	from, end := r.until(), now.Add(buildAhead)
	if from.Sub(now) >= nearEnough {
		return
	}
	next, name, issued := r.expected(h, before, curve, now)
	if next == nil {
		return // nothing is known ahead, and nothing is made up
	}
	r.issuedAt = issued
	if r.quality == energy.Measured {
		r.quality = energy.Derived
	}
	ranged := r.low != nil
	if len(r.values) == 1 {
		ranged, r.model = true, name
		r.low, r.high = []float64{r.values[0]}, []float64{r.values[0]}
	} else if r.model != name {
		r.model += "+" + name
	}
	for t := from; t.Before(end) && len(r.values) < maxValues; t = t.Add(r.step) {
		p, ok := next(t)
		if !ok {
			break
		}
		ranged = ranged && p.hasRange()
		r.append(p)
	}
	if !ranged {
		r.low, r.high = nil, nil
	}
}

// expected returns what is to be expected after the reading, who says so, and since when: the best of our models on
// the history; or where that is too short, as it is for a day after a restart, what was expected before; or the
// typical curve. It is nil if there is nothing of that.
func (r *reading) expected(h *history, before *reading, curve *forecast.Curve,
	now time.Time,
) (next func(time.Time) (Point, bool), name string, issued time.Time) {
	from, end := r.until(), now.Add(buildAhead)
	past := h.series(from, func(t time.Time) (float64, bool) {
		if t.Add(time.Hour).Before(r.start) {
			return 0, false
		}
		return r.values[min(r.index(t), len(r.values)-1)], true
	})
	if f, err := forecast.Best(past, from, end.Sub(from)); err == nil {
		return pointsOf(f), f.Model, now
	}
	if name, ok := before.tail(from, now); ok {
		return before.at, name, before.issuedAt
	}
	if curve == nil {
		return nil, "", now
	}
	known := from.Add(-time.Second) // of the hour of the last known value
	f, err := forecast.Typical(*curve, r.values[len(r.values)-1], known, end.Sub(known))
	if err != nil {
		return nil, "", now // its horizon is two days
	}
	return pointsOf(f), f.Model, now
}

// pointsOf returns a forecast point by point.
func pointsOf(f grid.Forecast) func(time.Time) (Point, bool) {
	return func(t time.Time) (Point, bool) {
		p := Point{Time: t, Value: f.Series.At(t)}
		if f.Low != nil {
			p.Low, p.High = f.Low.At(t), f.High.At(t)
		}
		return p, true
	}
}

// tail returns who forecast what a reading says after a moment, if that is of use still: it was made not long ago,
// and from more than a typical day.
func (r *reading) tail(from, now time.Time) (name string, ok bool) {
	if r == nil || !r.until().After(from) || now.Sub(r.issuedAt) > tailSpan {
		return "", false
	}
	name = r.model[strings.LastIndexByte(r.model, '+')+1:]
	return name, name != forecast.TypicalModel
}

// at returns the value that a reading says holds at t.
func (r *reading) at(t time.Time) (Point, bool) {
	i := r.index(t)
	if t.Before(r.start) || i >= len(r.values) {
		return Point{}, false
	}
	p := Point{Time: t, Value: r.values[i]}
	if r.low != nil {
		p.Low, p.High = r.low[i], r.high[i]
	}
	return p, true
}

// forecast returns a reading's values from number first on as a forecast.
func (r *reading) forecast(first int) grid.Forecast {
	return grid.Forecast{
		Series: r.series(r.values, first), Low: r.series(r.low, first), High: r.series(r.high, first),
		IssuedAt: r.issuedAt, Model: r.model,
	}
}

// series returns values from number first on.
func (r *reading) series(values []float64, first int) *grid.Series {
	if values == nil {
		return nil
	}
	last := min(len(values), first+int((horizon+r.step-1)/r.step))
	s, err := grid.NewSeries(r.start.Add(time.Duration(first)*r.step), r.step, values[first:last])
	if err != nil {
		return nil // there is a value, a step, and nothing that is not finite
	}
	return s
}

// rounded keeps as many digits as a value of the quantity has that mean anything.
func rounded(q quantity, values []float64) []float64 {
	scale := 10.0
	if q == price {
		scale = 1e5
	}
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.Round(v*scale) / scale
	}
	return out
}
