package grid

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// Series is a piecewise constant function of time: value i applies from Start + i·step until the next step. It is
// immutable, so that snapshots can share it.
type Series struct {
	start  int64 // Unix nanoseconds
	step   int64 // nanoseconds
	values []float64
	sums   []float64 // sums[i] = before + values[0] + … + values[i-1], so that any integral takes two lookups
}

// NewSeries copies values into a Series. It returns an error for an empty series, a step that is not positive, and
// NaN or infinite values.
func NewSeries(start time.Time, step time.Duration, values []float64) (*Series, error) {
	return Resume(0, start, step, values)
}

// Resume returns a series without its earlier values. Their sum is before. Integrals are
// differences of rounded sums, so they are exactly the same as for the complete series only if the sums are the same.
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

// Constant returns a series with a single value from start until start + d.
func Constant(start time.Time, d time.Duration, value float64) (*Series, error) {
	return NewSeries(start, d, []float64{value})
}

// Start returns the first time with a value.
func (s *Series) Start() time.Time { return time.Unix(0, s.start).UTC() }

// End returns the first time without a value.
func (s *Series) End() time.Time { return time.Unix(0, s.end()).UTC() }

// Step returns the duration of each value.
func (s *Series) Step() time.Duration { return time.Duration(s.step) }

// Len returns the number of values.
func (s *Series) Len() int { return len(s.values) }

// Value returns the i-th value.
func (s *Series) Value(i int) float64 { return s.values[i] }

// Values returns a copy of the values with indexes in [from, until).
func (s *Series) Values(from, until int) []float64 { return slices.Clone(s.values[from:until]) }

// Before returns the sum of the values before index i; see [Resume].
func (s *Series) Before(i int) float64 { return s.sums[i] }

func (s *Series) end() int64 { return s.start + int64(len(s.values))*s.step }

// Covers reports whether start and all of [start, end) are within the series.
func (s *Series) Covers(start, end time.Time) bool {
	return start.UnixNano() >= s.start && start.UnixNano() < s.end() && end.UnixNano() <= s.end()
}

// At returns the value at t. Before the start and after the end it returns the first and the last value; use Covers
// to exclude these cases.
func (s *Series) At(t time.Time) float64 { return s.values[s.index(t.UnixNano())] }

// Integral returns the exact integral over [start, end) in value·seconds. The first and the last value extend
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
	// The two ends are computed separately. As a difference of two sums from the start of the series, the integral
	// over a short window would lose most of its precision.
	head := s.values[i] * seconds(s.start+(i+1)*s.step-a)
	tail := s.values[j] * seconds(b-s.start-j*s.step)
	return head + (s.sums[j]-s.sums[i+1])*seconds(s.step) + tail
}

// Mean returns the mean over [start, end), or the value at start if the window is empty.
func (s *Series) Mean(start, end time.Time) float64 {
	if !end.After(start) {
		return s.At(start)
	}
	return s.Integral(start, end) / end.Sub(start).Seconds()
}

// index returns the index of the value at t, clamped to the series.
func (s *Series) index(t int64) int64 {
	if t < s.start {
		return 0
	}
	return min((t-s.start)/s.step, int64(len(s.values)-1))
}

func seconds(nanos int64) float64 { return float64(nanos) / 1e9 }

// Steps yields the times in (after, until] at which a new value starts or the series ends.
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

// Between returns the steps of the series that overlap [from, until), or nil if there are none.
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
