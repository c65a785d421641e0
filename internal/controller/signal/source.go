package signal

import (
	"context"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Source is one provider's knowledge of one quantity of one zone. A file of this package holds one kind. It is asked by
// one goroutine at a time.
type Source interface {
	// Fetch asks once. It checks the shape and the unit of what it reads and converts to gCO2e/kWh, or to the
	// currency per kWh; whether the numbers make sense is for the caller to say, alike for all sources.
	Fetch(ctx context.Context, now time.Time) (Answer, error)
}

// Answer is what a source said.
type Answer struct {
	Zone     grid.Zone     // that the answer says it is of; "" where it does not say
	Points   []Point       // past, present and future, in any order
	Step     time.Duration // how long a point holds; 0: until the next one, the last as long as the one before
	IssuedAt time.Time     // when the source issued its present value; zero where Ageless
	Ageless  bool          // a tariff, a static value, a recorded file: it does not grow old
	Marginal bool          // marginal intensity; otherwise average
	Currency string        // of its prices; "" where it does not say
	Model    string        // who forecast the future points; "" for the source itself
	Lacks    error         // what could not be had beside: the answer stands without it
}

// Point is the value of a quantity from a moment on.
type Point struct {
	Time      time.Time
	Value     float64
	Estimated bool    // the source says that it did not measure this one
	Low, High float64 // tenth and ninetieth percentile of a forecast; both 0 where it gives none
}

// estimated marks all points as estimated.
func (a Answer) estimated() Answer {
	for i := range a.Points {
		a.Points[i].Estimated = true
	}
	return a
}

// extra is what a source is asked for beside the present, and less often.
type extra struct {
	Answer
	came time.Time
	next time.Time // when it is asked for again
}

// renew asks for it once its time has come. Where that fails on the way, the answer lacks it, for a day if the plan
// does not include it; where what comes is wrong, nothing that this provider says now is believed. What came before is
// of use for some time.
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

// supplement adds to points those of more at other times. The first are newer or better, and win.
func supplement(points, more []Point) []Point {
	have := make(map[int64]bool, len(points))
	for _, p := range points {
		have[p.Time.UnixNano()] = true
	}
	for _, p := range more {
		if !have[p.Time.UnixNano()] {
			points = append(points, p)
		}
	}
	return points
}

// pointsIn returns the values of a series as points.
func pointsIn(s *grid.Series, estimated bool) []Point {
	points := make([]Point, s.Len())
	for i := range points {
		points[i] = Point{
			Time: s.Start().Add(time.Duration(i) * s.Step()), Value: s.Value(i), Estimated: estimated,
		}
	}
	return points
}

// newest returns the time of the last point that has begun, which is when a source that does not say so issued its
// present value; zero if there is none.
func newest(points []Point, now time.Time) time.Time {
	var last time.Time
	for _, p := range points {
		if p.Time.After(last) && !p.Time.After(now) {
			last = p.Time
		}
	}
	return last
}

// minGap returns the least time between two points, which is the step of regular ones with gaps; 0 for a single one.
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
