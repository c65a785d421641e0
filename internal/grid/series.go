package grid

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// Series is a piecewise constant function of time: value i holds from Start + i·step until the next step.
// It is immutable, so that snapshots can share it.
type Series struct {
	start  int64 // Unix nanoseconds
	step   int64 // nanoseconds
	values []float64
	sums   []float64 // sums[i] = before + values[0] + … + values[i-1]: integrals cost two lookups, whatever the window
}

// NewSeries copies values into a Series. It refuses an empty series, a step that is not positive, and NaN or infinite
// values, so that no caller has to check again.
func NewSeries(start time.Time, step time.Duration, values []float64) (*Series, error) {
	return Resume(0, start, step, values)
}

// Resume returns a series whose values before start, which it does not know any more, add up to before. Integrals are
// differences of sums, which are rounded: only with the same sums are they the same as those of the whole series, to
// the last digit.
func Resume(before float64, start time.Time, step time.Duration, values []float64) (*Series, error) {
	if len(values) == 0 {
		return nil, fmt.Errorf("series from %s has no values", start.Format(time.RFC3339))
	}
	if step <= 0 {
		return nil, fmt.Errorf("series from %s has step %v: want more than 0", start.Format(time.RFC3339), step)
	}
	s := &Series{
		start:  start.UnixNano(),
		step:   int64(step),
		values: slices.Clone(values),
		sums:   make([]float64, len(values)+1),
	}
	s.sums[0] = before
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("value %d of the series, at %s, is %v", i,
				start.Add(time.Duration(i)*step).Format(time.RFC3339), v)
		}
		s.sums[i+1] = s.sums[i] + v
	}
	return s, nil
}

// Constant returns a series of one value from start on for d.
func Constant(start time.Time, d time.Duration, value float64) (*Series, error) {
	return NewSeries(start, d, []float64{value})
}

// Start returns the first instant with a value.
func (s *Series) Start() time.Time { return time.Unix(0, s.start).UTC() }

// End returns the first instant without a value.
func (s *Series) End() time.Time { return time.Unix(0, s.end()).UTC() }

// Step returns how long each value holds.
func (s *Series) Step() time.Duration { return time.Duration(s.step) }

// Len returns the number of values.
func (s *Series) Len() int { return len(s.values) }

// Value returns the i-th value.
func (s *Series) Value(i int) float64 { return s.values[i] }

// Values returns a copy of the values from the first on and before the second of two numbers.
func (s *Series) Values(from, until int) []float64 { return slices.Clone(s.values[from:until]) }

// Before returns the sum of the values before the i-th: see [Resume].
func (s *Series) Before(i int) float64 { return s.sums[i] }

func (s *Series) end() int64 { return s.start + int64(len(s.values))*s.step }

// Covers reports whether the series knows every instant of [start, end), and start itself.
func (s *Series) Covers(start, end time.Time) bool {
	return start.UnixNano() >= s.start && start.UnixNano() < s.end() && end.UnixNano() <= s.end()
}

// At returns the value at t. Before its start and after its end a series keeps its first and last value; callers that
// must not rely on that ask Covers.
func (s *Series) At(t time.Time) float64 { return s.values[s.index(t.UnixNano())] }

// Integral returns the exact integral over [start, end) in value·seconds, with the first and last value extended
// beyond the series.
func (s *Series) Integral(start, end time.Time) float64 {
	a, b := start.UnixNano(), end.UnixNano()
	if b <= a {
		return 0
	}
	i, j := s.index(a), s.index(b)
	if i == j {
		return s.values[i] * seconds(b-a)
	}
	// The two ends are computed by themselves: as a difference of two sums from the start of the series, a short
	// window would lose most of its digits.
	head := s.values[i] * seconds(s.start+(i+1)*s.step-a)
	tail := s.values[j] * seconds(b-s.start-j*s.step)
	return head + (s.sums[j]-s.sums[i+1])*seconds(s.step) + tail
}

// Mean returns the average over [start, end), or the value at start if the window is empty.
func (s *Series) Mean(start, end time.Time) float64 {
	if !end.After(start) {
		return s.At(start)
	}
	return s.Integral(start, end) / end.Sub(start).Seconds()
}

// index returns the number of the value that holds at t, the first or last one beyond the series.
func (s *Series) index(t int64) int64 {
	if t < s.start {
		return 0
	}
	return min((t-s.start)/s.step, int64(len(s.values)-1))
}

func seconds(nanos int64) float64 { return float64(nanos) / 1e9 }

// Steps yields the instants in (after, until] at which a new value begins or the series ends.
func (s *Series) Steps(after, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		i := max(0, (after.UnixNano()-s.start)/s.step)
		for ; i <= int64(len(s.values)); i++ {
			t := s.start + i*s.step
			if t <= after.UnixNano() {
				continue
			}
			if t > until.UnixNano() || !yield(time.Unix(0, t).UTC()) {
				return
			}
		}
	}
}

// Between returns the steps of the series that overlap [from, until), or nil where there are none.
func (s *Series) Between(from, until time.Time) *Series {
	first := max(0, (from.UnixNano()-s.start)/s.step)
	last := min(int64(len(s.values)), (until.UnixNano()-s.start+s.step-1)/s.step)
	if first >= last {
		return nil
	}
	part, err := NewSeries(s.Start().Add(time.Duration(first*s.step)), s.Step(), s.values[first:last])
	if err != nil {
		panic(err) // the whole series was valid
	}
	return part
}
