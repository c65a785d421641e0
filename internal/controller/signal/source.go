package signal

import (
	"context"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Source provides a quantity of a zone from a provider. Each kind of source has its own file in this package.
// Implementations need not be safe for concurrent use.
type Source interface {
	// Fetch polls the source once. It validates the format and the unit of the response and converts values to
	// gCO2e/kWh or to the currency per kWh. The caller validates the values in the same way for all sources.
	Fetch(ctx context.Context, now time.Time) (Answer, error)
}

// Answer is the result of polling a source.
type Answer struct {
	Zone     grid.Zone     // zone in the response; empty if absent
	Points   []Point       // past, present and future, in any order
	Step     time.Duration // duration of each point; 0 means until the next point
	IssuedAt time.Time     // time of issue of the current value; zero if Ageless
	Ageless  bool          // values do not age: a tariff, a static value or a recorded file
	Currency string        // of prices; empty if absent in the response
	Model    string        // forecast model of future points; empty for the source itself
	Lacks    error         // error of optional requests; the answer is valid without them
}

// Point is a value that is in effect from a point in time.
type Point struct {
	Time      time.Time
	Value     float64
	Estimated bool    // not measured, according to the source
	Low, High float64 // 10th and 90th percentile of a forecast; both 0 if absent
}

// estimated marks all points as estimated.
func (a Answer) estimated() Answer {
	for i := range a.Points {
		a.Points[i].Estimated = true
	}
	return a
}

// extra is optional data of a source that is requested less often than the current value.
type extra struct {
	Answer
	came time.Time
	next time.Time // time of the next request
}

// renew requests the data if it is due. If the request fails, the error is returned as lacks and the previous data
// is used for some time. If the plan of the user does not include the data, it is not requested for a day. If the
// response is invalid, the error is returned as wrong and all current data of the provider must be rejected.
func (e *extra) renew(now time.Time, every, keep time.Duration, ask func() (Answer, error)) (lacks, wrong error) {
	if now.Before(e.next) {
		return nil, nil
	}
	e.next = now.Add(every)
	a, err := ask()
	if err == nil {
		e.Answer, e.came = a, now
		return nil, nil
	}
	if now.Sub(e.came) > keep {
		e.Answer = Answer{}
	}
	switch dial.ReasonOf(err) {
	case dial.ReasonAuth:
		e.next = now.Add(24 * time.Hour)
	case dial.ReasonHTTP, dial.ReasonRate, dial.ReasonMissing:
	default:
		return nil, err
	}
	return err, nil
}

// supplement returns points with those of more at other times. Values in points take precedence, as they are newer
// or more accurate.
func supplement(points, more []Point) []Point {
	have := make(map[int64]bool, len(points))
	for _, p := range points {
		have[p.Time.UnixNano()] = true
	}
	known := func(p Point) bool { return have[p.Time.UnixNano()] }
	return append(points, slices.DeleteFunc(slices.Clone(more), known)...)
}

// pointsIn converts a series to points.
func pointsIn(s *grid.Series, estimated bool) []Point {
	points := make([]Point, s.Len())
	for i := range points {
		points[i] = Point{
			Time: s.Start().Add(time.Duration(i) * s.Step()), Value: s.Value(i), Estimated: estimated,
		}
	}
	return points
}

// newest returns the time of the last point that is not in the future. It is the time of issue if a source does not
// provide one. It returns the zero time if there is no such point.
func newest(points []Point, now time.Time) time.Time {
	var last time.Time
	for _, p := range points {
		if p.Time.After(last) && !p.Time.After(now) {
			last = p.Time
		}
	}
	return last
}

// minGap returns the minimum time between two points, which is the step of regular points with gaps. It returns 0
// if there are fewer than two different times.
func minGap(points []Point) time.Duration {
	points = slices.SortedFunc(slices.Values(points), Point.compare)
	var least time.Duration
	for i := 1; i < len(points); i++ {
		if gap := points[i].Time.Sub(points[i-1].Time); gap > 0 && (least == 0 || gap < least) {
			least = gap
		}
	}
	return least
}
