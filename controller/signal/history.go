package signal

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/grid"
)

// historySpan is what is remembered of a signal to forecast it.
const historySpan = 28 * 24 * time.Hour

const (
	historyHours = int64(historySpan / time.Hour)
	recentSpan   = 2 * time.Hour // in which further values of an hour are awaited
	bridged      = 3             // hours without a value that are filled with the one before
)

// history is what was observed, by the hour: under six kilobytes for four weeks.
type history struct {
	first  int64 // hour since 1970 of hours[0]
	hours  []hourMean
	recent []sample // of the last hours, which are not over
}

// hourMean is the mean of the values of an hour.
type hourMean struct {
	mean  float32
	count uint16 // of values; 0: none is known
}

type sample struct {
	at    int64 // Unix seconds
	value float64
}

// add remembers the points that are past. A mean of fewer values than it has been computed from before is not
// believed: the answer begins or ends within that hour.
func (h *history) add(points []Point, now time.Time) {
	merged := make(map[int64]float64, len(points)+len(h.recent))
	for _, s := range h.recent {
		merged[s.at] = s.value
	}
	oldest := now.Add(-historySpan)
	for _, p := range points {
		if !p.Time.After(now) && p.Time.After(oldest) {
			merged[p.Time.Unix()] = p.Value
		}
	}
	type sum struct {
		total float64
		count int
	}
	sums := make(map[int64]sum)
	h.recent = h.recent[:0]
	for at, value := range merged {
		s := sums[at/3600]
		sums[at/3600] = sum{s.total + value, s.count + 1}
		if now.Unix()-at < int64(recentSpan/time.Second) {
			h.recent = append(h.recent, sample{at, value})
		}
	}
	for hour, s := range sums {
		h.put(hour, s.total/float64(s.count), s.count)
	}
	h.forget(oldest.Unix() / 3600)
}

// put writes the mean of an hour.
func (h *history) put(hour int64, mean float64, count int) {
	if len(h.hours) == 0 {
		h.first = hour
	}
	if before := h.first - hour; before > 0 {
		h.hours = slices.Insert(h.hours, 0, make([]hourMean, before)...)
		h.first = hour
	}
	if beyond := int(hour-h.first) - len(h.hours) + 1; beyond > 0 {
		h.hours = append(h.hours, make([]hourMean, beyond)...)
	}
	if slot := &h.hours[hour-h.first]; count >= int(slot.count) {
		*slot = hourMean{float32(mean), uint16(min(count, 1<<16-1))}
	}
}

// forget drops the hours before one.
func (h *history) forget(hour int64) {
	if n := hour - h.first; n > 0 {
		h.hours = slices.Delete(h.hours, 0, int(min(n, int64(len(h.hours)))))
		h.first = hour
	}
}

// series returns the hours from the last long gap on that begin before until; nil if there are none. Hours
// that were not observed are taken from ahead.
func (h *history) series(until time.Time, ahead func(time.Time) (float64, bool)) *grid.Series {
	var values []float64
	start, missing := h.first, 0
	for hour := h.first; hour*3600 < until.Unix() && hour < h.first+2*historyHours; hour++ {
		value, ok := h.mean(hour)
		if !ok {
			value, ok = ahead(time.Unix(hour*3600, 0))
		}
		if !ok {
			missing++
			continue
		}
		if missing > bridged || len(values) == 0 {
			values, start = values[:0], hour
		} else if missing > 0 {
			values = append(values, slices.Repeat(values[len(values)-1:], missing)...)
		}
		values, missing = append(values, value), 0
	}
	if len(values) == 0 {
		return nil
	}
	s, err := grid.NewSeries(time.Unix(start*3600, 0).UTC(), time.Hour, values)
	if err != nil {
		return nil // it has values, a step, and nothing that is not finite
	}
	return s
}

// mean returns the mean of an hour, if it is known.
func (h *history) mean(hour int64) (float64, bool) {
	i := hour - h.first
	if i < 0 || i >= int64(len(h.hours)) || h.hours[i].count == 0 {
		return 0, false
	}
	return float64(h.hours[i].mean), true
}
