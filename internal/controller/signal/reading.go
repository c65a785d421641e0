package signal

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/past"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

const (
	horizon    = 48 * time.Hour        // of the forecast in a status
	buildAhead = horizon + 2*time.Hour // with a margin until the next answer
	nearEnough = horizon - 2*time.Hour // sources with a longer forecast need no additional model
	maxValues  = 2016                  // maximum number of values in a status
	tailSpan   = 24 * time.Hour        // maximum age of a forecast that is reused without a history
	bridged    = 3                     // maximum length of a gap in an answer that is filled, in steps
)

// read converts a validated answer to a status that starts at the current time. It only contains the source's own
// forecast.
func (w terms) read(a *Answer, present Point, now time.Time, source string) *v1alpha1.SignalStatus {
	s := &v1alpha1.SignalStatus{
		Unit: w.unit(), Quality: measured, Source: source, ForecastSource: cmp.Or(a.Model, source),
	}
	if !a.Ageless {
		s.AsOf = &metav1.Time{Time: a.IssuedAt}
	}
	if present.Estimated {
		s.Quality = energy.Estimated.String()
	}
	var offset time.Duration   // offset of the grid from the full hour
	sole := len(a.Points) == 1 // may have any time, and does not cover the next hour
	step := a.Step
	switch {
	case sole:
		step = max(step, soleStep)
	case step == 0:
		step = commonStep(a.Points)
	default:
		offset = time.Duration(a.Points[0].Time.UnixNano() % int64(step))
	}
	s.Step.Duration = step
	s.Start = metav1.NewTime(time.Unix(0, now.UnixNano()-(now.UnixNano()-int64(offset))%int64(step)).UTC())
	add(s, present)
	last, ranged := present, true
	for t := until(s); !sole && t.Before(now.Add(buildAhead)) && len(s.Values) < maxValues; t = t.Add(step) {
		p, ok := a.at(t)
		if ok {
			last = p
		} else if !a.resumes(t) {
			break
		} else {
			derive(s)
		}
		add(s, last)
		ranged = ranged && last.hasRange()
	}
	if !ranged || len(s.Values) == 1 {
		s.Low, s.High = nil, nil
	}
	return s
}

var measured, derived = energy.Measured.String(), energy.Derived.String()

// derive changes the quality of a measured status to derived.
func derive(s *v1alpha1.SignalStatus) {
	if s.Quality == measured {
		s.Quality = derived
	}
}

// add appends a value and its percentiles, which default to the value itself.
func add(s *v1alpha1.SignalStatus, p Point) {
	if !p.hasRange() {
		p.Low, p.High = p.Value, p.Value
	}
	s.Values, s.Low, s.High = append(s.Values, p.Value), append(s.Low, p.Low), append(s.High, p.High)
}

// until returns the end of the values of a status (exclusive).
func until(s *v1alpha1.SignalStatus) time.Time {
	return s.Start.Add(time.Duration(len(s.Values)) * s.Step.Duration)
}

// index returns the index of the value that is in effect at t.
func index(s *v1alpha1.SignalStatus, t time.Time) int {
	return max(0, int(t.Sub(s.Start.Time)/s.Step.Duration))
}

// point returns the value with index i as a point.
func point(s *v1alpha1.SignalStatus, i int) Point {
	p := Point{Time: s.Start.Add(time.Duration(i) * s.Step.Duration), Value: s.Values[i]}
	if s.Low != nil {
		p.Low, p.High = s.Low[i], s.High[i]
	}
	return p
}

// expired reports whether a status is nil, too old, or does not cover the current time.
func expired(s *v1alpha1.SignalStatus, now time.Time, maxAge time.Duration) bool {
	return s == nil || now.Before(s.Start.Add(-clockSkew)) || !now.Before(until(s)) ||
		s.AsOf != nil && now.Sub(s.AsOf.Time) > maxAge
}

// end returns the time when a status expires.
func end(s *v1alpha1.SignalStatus, maxAge time.Duration) time.Time {
	if s.AsOf == nil {
		return until(s)
	}
	return timeutil.Earlier(until(s), s.AsOf.Add(maxAge))
}

// resumes reports whether a gap at t is short, so that another point follows within a few steps.
func (a *Answer) resumes(t time.Time) bool {
	for range bridged {
		t = t.Add(a.Step)
		if _, ok := a.at(t); ok {
			return true
		}
	}
	return false
}

// commonStep returns the longest common step that divides the times of all points, or one minute if there is none.
func commonStep(points []Point) time.Duration {
	for _, step := range []time.Duration{time.Hour, 30 * time.Minute, 15 * time.Minute, 5 * time.Minute} {
		if !slices.ContainsFunc(points, func(p Point) bool { return p.Time.UnixNano()%int64(step) != 0 }) {
			return step
		}
	}
	return minStep
}

// A basis contains the data that forecasts are based on. All fields except for track may be nil.
type basis struct {
	track   *past.Track
	archive *past.Archive // includes track
	trained *forecast.Trained
	typical *forecast.Curve // typical day of the zone
}

// hours returns the hourly means until the given time. Hours that are not known are taken from ahead.
func (b *basis) hours(until time.Time, ahead func(time.Time) (float64, bool)) *grid.Series {
	known := b.track.Mean
	if b.archive != nil {
		known = b.archive.Mean
	}
	return past.HourlyMeans(until.Add(-forecast.Recent), until, func(hour time.Time) (float64, bool) {
		if mean, ok := known(hour); ok {
			return mean, true
		}
		return ahead(hour)
	})
}

// complete extends the forecast of a new status if it is too short, and returns the time when the forecast was made.
func (l *link) complete(s *v1alpha1.SignalStatus, b basis, now time.Time) time.Time {
	issued := now
	if s.AsOf != nil {
		issued = s.AsOf.Time
	}
	from, last := until(s), now.Add(buildAhead)
	if from.Sub(now) >= nearEnough {
		return issued
	}
	next, name, made := l.expected(s, &b, now)
	if next == nil {
		return issued // no forecast is available, and values are never invented
	}
	derive(s)
	ranged := s.Low != nil
	if len(s.Values) == 1 {
		ranged, s.ForecastSource = true, name
		s.Low, s.High = slices.Clone(s.Values), slices.Clone(s.Values)
	} else if s.ForecastSource != name {
		s.ForecastSource += "+" + name
	}
	for t := from; t.Before(last) && len(s.Values) < maxValues; t = t.Add(s.Step.Duration) {
		p, ok := next(t)
		if !ok {
			break
		}
		ranged = ranged && p.hasRange()
		add(s, p)
	}
	if !ranged {
		s.Low, s.High = nil, nil
	}
	return made
}

// expected returns a forecast for the time after a new status, with the name of its model and its time of issue. It
// uses the trained model if there is one, and otherwise the best plain model for the history. If the history is too
// short, for example for a day after a restart without a ledger, it reuses the previous forecast unless that is too old
// or based on the typical day. Otherwise it uses the typical day. It returns nil if none of these is available.
func (l *link) expected(s *v1alpha1.SignalStatus, b *basis, now time.Time) (
	next func(time.Time) (Point, bool), name string, issued time.Time,
) {
	from, last := until(s), now.Add(buildAhead)
	hours := b.hours(from, func(t time.Time) (float64, bool) {
		return s.Values[min(index(s, t), len(s.Values)-1)], !t.Add(time.Hour).Before(s.Start.Time)
	})
	if b.trained != nil {
		if f, err := b.trained.Forecast(hours, from, last.Sub(from)); err == nil {
			return pointsOf(f), f.Model, now
		}
	}
	if f, err := forecast.Best(hours, from, last.Sub(from)); err == nil {
		return pointsOf(f), f.Model, now
	}
	if before := l.status; before != nil && until(before).After(from) && now.Sub(l.issued) <= tailSpan {
		name = before.ForecastSource[strings.LastIndexByte(before.ForecastSource, '+')+1:]
		if name != forecast.TypicalModel {
			return func(t time.Time) (Point, bool) {
				if i := index(before, t); !t.Before(before.Start.Time) && i < len(before.Values) {
					return point(before, i), true
				}
				return Point{}, false
			}, name, l.issued
		}
	}
	if b.typical == nil {
		return nil, "", now
	}
	known := from.Add(-time.Second) // within the hour of the last known value
	f, err := forecast.Typical(*b.typical, s.Values[len(s.Values)-1], known, last.Sub(known))
	if err != nil {
		return nil, "", now // the range exceeds its horizon of two days
	}
	return pointsOf(f), f.Model, now
}

// pointsOf returns a function that returns the point of a forecast at a given time.
func pointsOf(f grid.Forecast) func(time.Time) (Point, bool) {
	return func(t time.Time) (Point, bool) {
		p := Point{Time: t, Value: f.Series.At(t)}
		if f.Low != nil {
			p.Low, p.High = f.Low.At(t), f.High.At(t)
		}
		return p, true
	}
}

// rounded rounds values to the significant digits of the quantity.
func rounded(q quantity, values []float64) []float64 {
	scale := 10.0
	if q == price {
		scale = 1e5
	}
	return sliceutil.Map(values, func(v float64) float64 { return math.Round(v*scale) / scale })
}
