package signal

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// What an answer may be.
const (
	maxIntensity = 10_000 // gCO2e/kWh, beyond the dirtiest oil-fired grid by far
	maxPoints    = 12_000 // 28 days of 5 minutes and some forecast
	maxAhead     = 15 * 24 * time.Hour
	minStep      = time.Minute
	maxStep      = 24 * time.Hour
	clockSkew    = time.Minute // between a provider's clock and ours
	soleStep     = time.Hour   // how long a value holds that comes alone
)

// A feed that stands still is broken: generation follows demand, and demand never rests. But a provider rounds to whole
// grams, and where nearly all is nuclear, hydro or geothermal power one gram is more than a day's change: France and
// Norway stand at 20-some grams for a night, Iceland for a day. So a whole number of at most this many grams may stand
// still for longer. Zero may not: that is what broken feeds show most.
const (
	standsStill      = 6 * time.Hour
	roundedIntensity = 100
	roundedStill     = 48 * time.Hour
	standGap         = 2 * time.Hour // with less often a value, it has not been seen to stand still

	// Estimates are often of a day like others, and may be the same for many hours.
	estimatedStill = 24 * time.Hour
)

// terms is what an answer must meet.
type terms struct {
	zone     grid.Zone
	quantity quantity
	marginal bool
	currency string
	maxAge   time.Duration
}

// check is the one validation of all sources. It sorts the points of an answer, leaves each once, and returns the one
// of now.
func (w terms) check(a *Answer, now time.Time) (present Point, err error) {
	switch {
	case len(a.Points) == 0:
		err = dial.Refuse(dial.ReasonMissing, "the answer has no values")
	case len(a.Points) > maxPoints:
		err = dial.Refuse(dial.ReasonSize, "the answer has %d values: want at most %d", len(a.Points), maxPoints)
	case a.Zone != "" && !strings.EqualFold(string(a.Zone), string(w.zone)):
		err = dial.Refuse(dial.ReasonZone, "the answer is of zone %.40q, asked was %s", a.Zone, w.zone)
	case w.quantity == price && a.Currency != "" && a.Currency != w.currency:
		err = dial.Refuse(dial.ReasonUnit, "the prices are in %.10q, wanted is %s", a.Currency, w.currency)
	case w.quantity == carbon && a.Marginal != w.marginal:
		err = dial.Refuse(dial.ReasonKind, "the intensity is %s, wanted is %s: the two are never mixed",
			Kind(a.Marginal), Kind(w.marginal))
	default:
		err = w.age(a, now)
	}
	if err != nil {
		return Point{}, err
	}
	points, err := w.sorted(a.Points, now)
	if err == nil {
		err = regular(points, a.Step)
	}
	if err != nil {
		return Point{}, err
	}
	a.Points = points
	return w.present(a, now)
}

// Kind names a kind of carbon intensity.
func Kind(marginal bool) string {
	if marginal {
		return "marginal"
	}
	return "average"
}

// age holds the present value against the clock: its own timestamp counts, not when it arrived.
func (w terms) age(a *Answer, now time.Time) error {
	age := now.Sub(a.IssuedAt)
	switch {
	case a.Ageless:
		return nil
	case a.IssuedAt.IsZero() && newest(a.Points, now).IsZero():
		return dial.Refuse(dial.ReasonMissing, "the answer says nothing about now")
	case a.IssuedAt.IsZero():
		return dial.Refuse(dial.ReasonTime, "the answer does not say of when it is")
	case age < -clockSkew:
		return dial.Refuse(dial.ReasonTime, "the present value is of %s, %v from now", a.IssuedAt.Format(time.RFC3339),
			-age)
	case age > w.maxAge:
		return dial.Refuse(dial.ReasonStale, "the present value is of %s, %v ago: want at most %v",
			a.IssuedAt.Format(time.RFC3339), age.Round(time.Second), w.maxAge)
	}
	return nil
}

// sorted checks each value, and returns them in order. Where clocks go back an hour comes twice; told apart by
// nothing but their values, neither can be believed.
func (w terms) sorted(points []Point, now time.Time) ([]Point, error) {
	for _, p := range points {
		if err := w.value(p); err != nil {
			return nil, err
		}
		if p.Time.Year() < 1990 || p.Time.Sub(now) > maxAhead {
			return nil, dial.Refuse(dial.ReasonTime, "a value is of %s", p.Time.Format(time.RFC3339))
		}
	}
	points = slices.SortedStableFunc(slices.Values(points), Point.compare)
	for i := 1; i < len(points); i++ {
		if a, b := points[i-1], points[i]; a.Time.Equal(b.Time) && a.Value != b.Value {
			return nil, dial.Refuse(dial.ReasonTime, "%s comes twice, with %v and with %v", a.Time.Format(time.RFC3339),
				a.Value, b.Value)
		}
	}
	return slices.CompactFunc(points, func(a, b Point) bool { return a.Time.Equal(b.Time) }), nil
}

// value checks one value and its percentiles.
func (w terms) value(p Point) error {
	low, high, unit := 0.0, float64(maxIntensity), "gCO2e/kWh"
	if w.quantity == price {
		high = float64(grid.MaxPriceOf(w.currency))
		low, unit = -high, w.currency+"/kWh"
	}
	in := func(v float64) bool { return v >= low && v <= high } // which NaN is not
	if !in(p.Value) {
		return dial.Refuse(dial.ReasonRange, "%v %s: want %v to %v", p.Value, unit, low, high)
	}
	if p.hasRange() && !(in(p.Low) && in(p.High) && p.Low <= p.Value && p.Value <= p.High) {
		return dial.Refuse(dial.ReasonRange, "%v %s is said to be between %v and %v", p.Value, unit, p.Low, p.High)
	}
	return nil
}

// hasRange reports whether a forecast value has percentiles.
func (p Point) hasRange() bool { return p.Low != 0 || p.High != 0 }

func (p Point) compare(o Point) int { return p.Time.Compare(o.Time) }

// regular checks that points with a step lie on a grid of such steps. Gaps are allowed: readers handle them.
func regular(points []Point, step time.Duration) error {
	if step == 0 {
		return nil
	}
	if step < minStep || step > maxStep {
		return dial.Refuse(dial.ReasonTime, "values are %v apart: want %v to %v", step, minStep, maxStep)
	}
	for _, p := range points[1:] {
		if off := p.Time.Sub(points[0].Time) % step; off != 0 {
			return dial.Refuse(dial.ReasonTime, "%s is %v off the others, which are %v apart",
				p.Time.Format(time.RFC3339), off, step)
		}
	}
	return nil
}

// present returns the value of now. An intensity is believed to be the last one known until that is too old. A price is
// set by the hour: the last one says nothing about the next.
func (w terms) present(a *Answer, now time.Time) (Point, error) {
	if p, ok := a.at(now); ok {
		return p, nil
	}
	i := a.upTo(now.Add(clockSkew)) // a clock somewhat ahead of ours
	if i < 0 || w.quantity == price || a.Ageless {
		return Point{}, dial.Refuse(dial.ReasonMissing, "the answer says nothing about now")
	}
	if age := now.Sub(a.Points[i].Time); age > w.maxAge {
		return Point{}, dial.Refuse(dial.ReasonStale, "the last value is of %s, %v ago: want at most %v",
			a.Points[i].Time.Format(time.RFC3339), age.Round(time.Second), w.maxAge)
	}
	return a.Points[i], nil
}

// upTo returns the last point that has begun at t, or -1.
func (a *Answer) upTo(t time.Time) int {
	i, found := slices.BinarySearchFunc(a.Points, t, func(p Point, t time.Time) int { return p.Time.Compare(t) })
	if found {
		return i
	}
	return i - 1
}

// at returns the point that holds at t.
func (a *Answer) at(t time.Time) (Point, bool) {
	i := a.upTo(t)
	if i < 0 || !t.Before(a.Points[i].Time.Add(a.hold(i))) {
		return Point{}, false
	}
	return a.Points[i], true
}

// hold returns how long point i holds.
func (a *Answer) hold(i int) time.Duration {
	switch {
	case a.Step > 0:
		return a.Step
	case len(a.Points) == 1:
		return soleStep
	}
	if i+1 == len(a.Points) {
		i--
	}
	return a.Points[i+1].Time.Sub(a.Points[i].Time)
}

// standstill watches for how long the values of a source have been the same: measured ones and, apart from them,
// estimated ones. A forecast that fills in for the last hour must not make measured values that stand
// still move.
type standstill struct {
	measured, estimated stretch
}

// stretch is a time for which a value has been the same.
type stretch struct {
	value       float64
	since, last time.Time
}

// add takes in a point, unless it is known.
func (s *stretch) add(p Point) {
	if !p.Time.After(s.last) {
		return
	}
	if p.Value != s.value || p.Time.Sub(s.last) > standGap {
		s.value, s.since = p.Value, p.Time
	}
	s.last = p.Time
}

// limit returns for how long measured values may stay at this one.
func (s *stretch) limit() time.Duration {
	if s.value >= 1 && s.value <= roundedIntensity && s.value == math.Trunc(s.value) {
		return roundedStill
	}
	return standsStill
}

// beyond refuses a stretch that is too long.
func (s *stretch) beyond(limit time.Duration) error {
	if still := s.last.Sub(s.since); still >= limit {
		return dial.Refuse(dial.ReasonFrozen, "the value has been %v since %s, for %v", s.value,
			s.since.Format(time.RFC3339), still)
	}
	return nil
}

// frozen adds the points of an answer up to now, and says whether they stand still for too long. Estimates whose source
// expects another value to come do not.
func (s *standstill) frozen(a *Answer, now time.Time) error {
	if a.Ageless {
		return nil
	}
	moves := false
	for _, p := range a.Points {
		switch {
		case p.Time.After(now.Add(clockSkew)):
			moves = moves || p.Value != s.estimated.value
		case p.Estimated:
			s.estimated.add(p)
		default:
			s.measured.add(p)
		}
	}
	if err := s.measured.beyond(s.measured.limit()); err != nil || moves {
		return err
	}
	return s.estimated.beyond(max(estimatedStill, s.estimated.limit()))
}
