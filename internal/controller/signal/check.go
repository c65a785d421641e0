package signal

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Limits of an answer.
const (
	maxIntensity = 10_000 // in gCO2e/kWh; far above any oil-fired grid
	maxPoints    = 12_000 // 28 days of 5-minute values and a forecast
	maxAhead     = 15 * 24 * time.Hour
	minStep      = time.Minute
	maxStep      = 24 * time.Hour
	clockSkew    = time.Minute // tolerated difference from the clock of a provider
	soleStep     = time.Hour   // duration of a single value
)

// A feed with constant values is considered broken, because generation follows demand, which changes all the time.
// However, providers round to whole grams, and in zones with mostly nuclear, hydro or geothermal power one gram is
// more than the change of a day. For example, France and Norway report the same value of about 20 g for a night,
// and Iceland for a day. Therefore, whole numbers up to roundedIntensity may remain constant for longer. This does
// not apply to zero, which is the most common value of broken feeds.
const (
	standsStill      = 6 * time.Hour
	roundedIntensity = 100
	roundedStill     = 48 * time.Hour
	standGap         = 2 * time.Hour // values that are further apart do not count as constant

	// Estimates are often based on similar days and may be constant for many hours.
	estimatedStill = 24 * time.Hour
)

// terms are the requirements for the answers of all sources of a keeper.
type terms struct {
	zone     grid.Zone
	quantity quantity
	marginal bool
	currency string
	maxAge   time.Duration
}

// check validates an answer. All sources use the same checks. It sorts the points, removes duplicates, and returns
// the current point.
func (w terms) check(a *Answer, now time.Time) (present Point, err error) {
	switch {
	case len(a.Points) == 0:
		err = dial.Refuse(dial.ReasonMissing, "the response has no values")
	case len(a.Points) > maxPoints:
		err = dial.Refuse(dial.ReasonSize, "the response has %d values, want at most %d", len(a.Points), maxPoints)
	case a.Zone != "" && !strings.EqualFold(string(a.Zone), string(w.zone)):
		err = dial.Refuse(dial.ReasonZone, "the response is for zone %.40q, want %s", a.Zone, w.zone)
	case w.quantity == price && a.Currency != "" && a.Currency != w.currency:
		err = dial.Refuse(dial.ReasonUnit, "the prices are in %.10q, want %s", a.Currency, w.currency)
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

// Kind returns the name of a kind of carbon intensity.
func Kind(marginal bool) string {
	if marginal {
		return "marginal"
	}
	return "average"
}

// age checks the age of the current value. The age is based on the timestamp of the value, not on the time of its
// arrival.
func (w terms) age(a *Answer, now time.Time) error {
	age := now.Sub(a.IssuedAt)
	switch {
	case a.Ageless:
		return nil
	case a.IssuedAt.IsZero() && newest(a.Points, now).IsZero():
		return dial.Refuse(dial.ReasonMissing, "the response has no value for the current time")
	case a.IssuedAt.IsZero():
		return dial.Refuse(dial.ReasonTime, "the response has no timestamp")
	case age < -clockSkew:
		return dial.Refuse(dial.ReasonTime, "the current value is from %s, %v in the future",
			a.IssuedAt.Format(time.RFC3339), -age)
	case age > w.maxAge:
		return dial.Refuse(dial.ReasonStale, "the current value is from %s, %v ago, want at most %v",
			a.IssuedAt.Format(time.RFC3339), age.Round(time.Second), w.maxAge)
	}
	return nil
}

// sorted validates each value and returns the points in chronological order without duplicates. Different values
// for the same time are an error, for example if a feed in local time repeats an hour at the end of daylight saving
// time.
func (w terms) sorted(points []Point, now time.Time) ([]Point, error) {
	for _, p := range points {
		if err := w.value(p); err != nil {
			return nil, err
		}
		if p.Time.Year() < 1990 || p.Time.Sub(now) > maxAhead {
			return nil, dial.Refuse(dial.ReasonTime, "a value has an invalid time: %s", p.Time.Format(time.RFC3339))
		}
	}
	points = slices.SortedStableFunc(slices.Values(points), Point.compare)
	for i := 1; i < len(points); i++ {
		if a, b := points[i-1], points[i]; a.Time.Equal(b.Time) && a.Value != b.Value {
			return nil, dial.Refuse(dial.ReasonTime, "%s has two values: %v and %v", a.Time.Format(time.RFC3339),
				a.Value, b.Value)
		}
	}
	return slices.CompactFunc(points, func(a, b Point) bool { return a.Time.Equal(b.Time) }), nil
}

// value validates a value and its percentiles.
func (w terms) value(p Point) error {
	low, high, unit := 0.0, float64(maxIntensity), "gCO2e/kWh"
	if w.quantity == price {
		high = float64(grid.MaxPriceOf(w.currency))
		low, unit = -high, w.currency+"/kWh"
	}
	in := func(v float64) bool { return v >= low && v <= high } // false for NaN
	if !in(p.Value) {
		return dial.Refuse(dial.ReasonRange, "the value is %v %s, want %v to %v", p.Value, unit, low, high)
	}
	if p.hasRange() && !(in(p.Low) && in(p.High) && p.Low <= p.Value && p.Value <= p.High) {
		return dial.Refuse(dial.ReasonRange, "the value is %v %s, but its percentiles are %v and %v", p.Value, unit,
			p.Low, p.High)
	}
	return nil
}

// hasRange reports whether the point has percentiles.
func (p Point) hasRange() bool { return p.Low != 0 || p.High != 0 }

func (p Point) compare(o Point) int { return p.Time.Compare(o.Time) }

// regular checks that all points are multiples of step apart. Gaps are allowed and handled later. A step of 0
// disables the check.
func regular(points []Point, step time.Duration) error {
	if step == 0 {
		return nil
	}
	if step < minStep || step > maxStep {
		return dial.Refuse(dial.ReasonTime, "the interval of values is %v, want %v to %v", step, minStep, maxStep)
	}
	for _, p := range points[1:] {
		if off := p.Time.Sub(points[0].Time) % step; off != 0 {
			return dial.Refuse(dial.ReasonTime, "the value at %s is %v off the interval of %v",
				p.Time.Format(time.RFC3339), off, step)
		}
	}
	return nil
}

// present returns the current point. For carbon intensities, the last point is used until it exceeds the maximum
// age. Prices are set per period, so the price of a past period is never used.
func (w terms) present(a *Answer, now time.Time) (Point, error) {
	if p, ok := a.at(now); ok {
		return p, nil
	}
	i := a.upTo(now.Add(clockSkew)) // the clock of the provider may be ahead
	if i < 0 || w.quantity == price || a.Ageless {
		return Point{}, dial.Refuse(dial.ReasonMissing, "the response has no value for the current time")
	}
	if age := now.Sub(a.Points[i].Time); age > w.maxAge {
		return Point{}, dial.Refuse(dial.ReasonStale, "the last value is from %s, %v ago, want at most %v",
			a.Points[i].Time.Format(time.RFC3339), age.Round(time.Second), w.maxAge)
	}
	return a.Points[i], nil
}

// upTo returns the index of the last point that starts at or before t, or -1.
func (a *Answer) upTo(t time.Time) int {
	i, found := slices.BinarySearchFunc(a.Points, t, func(p Point, t time.Time) int { return p.Time.Compare(t) })
	if found {
		return i
	}
	return i - 1
}

// at returns the point that is in effect at t.
func (a *Answer) at(t time.Time) (Point, bool) {
	i := a.upTo(t)
	if i < 0 || !t.Before(a.Points[i].Time.Add(a.hold(i))) {
		return Point{}, false
	}
	return a.Points[i], true
}

// hold returns the duration of point i. Without a step, a point lasts until the next one, and the last point as long
// as the one before it.
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

// standstill tracks for how long the values of a source have been constant. Measured and estimated values are
// tracked separately, because a forecast for the last hour must not hide that the measured values are constant.
type standstill struct {
	measured, estimated stretch
}

// stretch is a period with a constant value.
type stretch struct {
	value       float64
	since, last time.Time
}

// add adds a point unless it is not newer than the last one.
func (s *stretch) add(p Point) {
	if !p.Time.After(s.last) {
		return
	}
	if p.Value != s.value || p.Time.Sub(s.last) > standGap {
		s.value, s.since = p.Value, p.Time
	}
	s.last = p.Time
}

// limit returns for how long measured values may remain at the current value.
func (s *stretch) limit() time.Duration {
	if s.value >= 1 && s.value <= roundedIntensity && s.value == math.Trunc(s.value) {
		return roundedStill
	}
	return standsStill
}

// beyond returns an error if the value has been constant for at least limit.
func (s *stretch) beyond(limit time.Duration) error {
	if still := s.last.Sub(s.since); still >= limit {
		return dial.Refuse(dial.ReasonFrozen, "the value has been constant at %v since %s, for %v", s.value,
			s.since.Format(time.RFC3339), still)
	}
	return nil
}

// frozen adds the past points of an answer and returns an error if values have been constant for too long.
// Estimates are not considered constant if the source forecasts a different value.
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
