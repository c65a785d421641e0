package past

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// Track stores past values in slots. Unknown values are NaN. Values older than Span are removed.
type Track struct {
	Span time.Duration
	Step time.Duration // duration of a slot, at most an hour; 0 means Slot

	first  int64 // number of the first slot, counted from 1970
	values []float64
}

const (
	// Slot is the default duration of a slot.
	Slot = 5 * time.Minute

	// bridged is the maximum length of a gap that is filled with the previous value, in slots or in hours of a
	// history.
	bridged = 3
	// bridgedDays is the maximum length of a gap in a history that is filled with the values of the previous day, in
	// hours.
	bridgedDays = 72
)

func (t *Track) slotOf(at time.Time) int64 { return at.Unix() / int64(t.step()/time.Second) }

// Empty reports whether the track has no values.
func (t *Track) Empty() bool { return len(t.values) == 0 }

// Set stores the value in effect at a time.
func (t *Track) Set(at time.Time, value float64) { t.set(t.slotOf(at), value) }

func (t *Track) step() time.Duration { return cmp.Or(t.Step, Slot) }

// Start returns the start of the first value. It must not be called without values.
func (t *Track) Start() time.Time { return time.Unix(t.first*int64(t.step()/time.Second), 0).UTC() }

func (t *Track) end() int64 { return t.first + int64(len(t.values)) }

// Note stores the current value. A short gap before it is filled, so that the restart of a process or a short
// interruption of a source leaves no gap.
func (t *Track) Note(now time.Time, value float64) {
	at, end := t.slotOf(now), t.end()
	if at-end <= bridged && len(t.values) > 0 {
		for last := t.values[len(t.values)-1]; end < at; end++ {
			t.set(end, last)
		}
	}
	t.set(at, value)
}

func (t *Track) set(at int64, value float64) {
	most := int64(t.Span / t.step())
	switch {
	case len(t.values) == 0 || at-t.end() >= most:
		t.first, t.values = at, nil
	case at < t.end()-most:
		return
	case at < t.first:
		t.values = slices.Concat(slices.Repeat([]float64{math.NaN()}, int(t.first-at)), t.values)
		t.first = at
	}
	for t.end() <= at {
		t.values = append(t.values, math.NaN())
	}
	t.values[at-t.first] = value
	if over := int64(len(t.values)) - most; over > 0 {
		t.values = slices.Delete(t.values, 0, int(over))
		t.first += over
	}
}

// During returns the values between two times, or nil unless all of them are known.
func (t *Track) During(start, end time.Time) *grid.Series {
	from, to := t.slotOf(start)-t.first, t.slotOf(end)-t.first
	if from < 0 || to >= int64(len(t.values)) || to < from {
		return nil
	}
	s, err := grid.NewSeries(t.Start().Add(time.Duration(from)*t.step()), t.step(), t.values[from:to+1])
	if err != nil { // a series must not contain NaN
		return nil
	}
	return s
}

// HourlyMeans returns the means of the hours from the one of first until the given time, starting after the last long
// gap. It returns nil if there are none.
func HourlyMeans(first, until time.Time, mean func(hour time.Time) (float64, bool)) *grid.Series {
	return hourlyMeans(first, until, false, mean)
}

// hourlyMeans is like HourlyMeans. With longest, it returns the longest period without a long gap.
func hourlyMeans(first, until time.Time, longest bool, mean func(time.Time) (float64, bool)) *grid.Series {
	var values, longestValues []float64
	var start, longestStart time.Time
	missing := 0
	for hour := first.Truncate(time.Hour); hour.Before(until); hour = hour.Add(time.Hour) {
		value, ok := mean(hour)
		if !ok {
			missing++
			continue
		}
		switch {
		case len(values) > 0 && missing <= bridged:
			values = append(values, slices.Repeat(values[len(values)-1:], missing)...)
		case len(values) >= 24 && missing <= bridgedDays:
			for range missing {
				values = append(values, values[len(values)-24])
			}
		default:
			if len(values) > len(longestValues) {
				longestValues, longestStart = values, start
			}
			values, start = nil, hour
		}
		values, missing = append(values, value), 0
	}
	if longest && len(longestValues) > len(values) {
		values, start = longestValues, longestStart
	}
	s, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		return nil // there are no values
	}
	return s
}

// Mean returns the mean of the known values of an hour. It returns false if there are none.
func (t *Track) Mean(hour time.Time) (float64, bool) {
	sum, n := 0.0, 0
	for i := t.slotOf(hour) - t.first; i < t.slotOf(hour.Add(time.Hour))-t.first; i++ {
		if i >= 0 && i < int64(len(t.values)) && !math.IsNaN(t.values[i]) {
			sum += t.values[i]
			n++
		}
	}
	return sum / float64(n), n > 0
}
