package forecast

import (
	"math"
	"slices"
)

// view combines a record with its structure: the expected intensity of each hour, the deviation of the intensity
// from it (the residual), and running means of both. The features of an origin only depend on hours before it.
type view struct {
	*record
	expected        []float64 // logarithms, relative to their mean over the training
	logs, residuals track
	levels          track // the intensity itself
	expectedSums    []float64
	width           int
	weathered       bool
}

// track is an hourly quantity with its running sums, and its means over the same time of day of the last 7 and 28
// days.
type track struct {
	values, sums, week, month []float64
	latest                    []float64 // values; odd hours have the previous value
}

// Numbers of features.
const (
	plainFeatures   = 39
	daytimeFeatures = 5 * 4
	historyFeatures = plainFeatures + daytimeFeatures
	weatherFeatures = historyFeatures + 23

	// reach is the number of hours of history that the features use.
	reach = 28*24 + 24
)

func newView(r *record, s *structure) *view {
	n := len(r.values)
	v := &view{
		record: r, weathered: s.weathered, width: historyFeatures, expected: make([]float64, len(r.days)),
	}
	if s.weathered {
		v.width = weatherFeatures
	}
	s.expect(v.expected, r)
	logs, residuals := make([]float64, n), make([]float64, n)
	for i, y := range r.values {
		logs[i] = logOf(y) - s.mean
		residuals[i] = logs[i] - v.expected[i]
	}
	odd := oddHours(logs)
	v.logs, v.residuals = newTrack(logs, odd), newTrack(residuals, odd)
	if !s.weathered { // weather models do not use the levels
		v.levels = newTrack(r.values, odd)
	}
	v.expectedSums = sums(v.expected)
	return v
}

func sums(values []float64) []float64 {
	s := make([]float64, len(values)+1)
	for i, v := range values {
		s[i+1] = s[i] + v
	}
	return s
}

func newTrack(values []float64, odd []bool) track {
	t := track{
		values: values, sums: sums(values), week: make([]float64, len(values)), month: make([]float64, len(values)),
	}
	t.latest = slices.Clone(values)
	for i := range values {
		if odd[i] {
			t.latest[i] = t.latest[i-1]
		}
		// The sum is recomputed for every hour, because a running sum would accumulate rounding errors.
		sum := 0.0
		for d := range 28 {
			if j := i - 24*d; j >= 0 {
				sum += values[j]
			}
			if d == 6 {
				t.week[i] = sum / 7
			}
		}
		t.month[i] = sum / 28
	}
	return t
}

// mean returns the mean over the hours [a, b).
func (t *track) mean(a, b int) float64 { return (t.sums[b] - t.sums[a]) / float64(b-a) }

// features computes the features of the hour h hours after origin t, where t is the first unknown hour. The first
// feature is 1, for the constant of the regressions. t must be at least reach.
func (v *view) features(x []float64, t, h int) {
	x = x[:v.width]
	hour := t + h
	k, k7 := lastKnown(h, 24, hour), lastKnown(h, 168, hour)
	after := k + 1
	if after >= t {
		after = k - 23
	}
	e, l := &v.residuals, &v.logs
	c := &v.days[hour]
	s := v.expected[hour]
	x[0] = 1
	x[1], x[2], x[3] = e.latest[t-1], e.latest[t-2], e.latest[t-3]
	x[4], x[5], x[6], x[7], x[8], x[9] = e.mean(t-6, t), e.mean(t-12, t), e.mean(t-24, t), e.mean(t-72, t),
		e.mean(t-168, t), e.mean(t-672, t)
	x[10] = e.mean(t-48, t-24)
	x[11], x[12], x[13], x[14], x[15] = e.values[k], e.values[k-24], e.week[k], e.month[k], e.values[k7]
	x[16] = (e.values[k-1] + e.values[after]) / 2
	x[17], x[18], x[19] = s, s-v.expected[k], (v.expectedSums[hour+1]-v.expectedSums[t])/float64(h+1)
	x[20], x[21], x[22] = l.latest[t-1], l.mean(t-24, t), l.mean(t-168, t)
	x[23], x[24], x[25], x[26], x[27] = l.values[k], l.values[k-24], l.week[k], l.month[k], l.values[k7]
	copy(x[28:32], c.year[:])
	copy(x[32:36], c.day[:4])
	x[36], x[37], x[38] = c.weekend(), indicator(c.weekday == 1), indicator(c.weekday == 0)
	n := plainFeatures
	// The weight of the recent residuals depends on the time of day. For example, a dull noon is hardly relevant
	// for the night.
	for _, off := range [...]float64{e.latest[t-1], e.mean(t-6, t), e.mean(t-24, t), e.values[k], s - v.expected[k]} {
		for _, day := range c.day[:4] {
			x[n] = off * day
			n++
		}
	}
	if v.weathered {
		v.weatherFeatures(x[historyFeatures:], t, hour, k)
	}
}

// lastKnown returns the last known hour that precedes the given hour by a multiple of period. The given hour is h
// hours ahead.
func lastKnown(h, period, hour int) int { return hour - period*(h/period+1) }

// offsets shift the weather variables towards zero, so that sums of squares do not lose precision.
var offsets = [variables]float64{temperature: 283, dewPoint: 278}

func (v *view) weatherFeatures(x []float64, t, hour, k int) {
	w := v.weather
	for i := range variables {
		o := offsets[i]
		x[4*i], x[4*i+1], x[4*i+2], x[4*i+3] = w.at(i, hour)-o, w.mean(i, hour-3, hour+4)-o, w.mean(i, t-24, t)-o,
			w.at(i, k)-o
	}
	n := 4 * variables
	x[n] = w.mean(wind, t, hour+1)
	x[n+1] = w.mean(radiation, hour-12, hour+13)
	x[n+2] = w.mean(temperature, hour-23, hour+1) - offsets[temperature]
}

// An hour is odd if the deviation from its neighboring hours exceeds the usual deviation and the deviation of the
// neighboring times of day by these factors.
const (
	oddness       = 4
	oddnessBeside = 1.5
)

// oddHours reports for each hour whether the values of the previous seven days deviated at its time of day, for
// example because a provider joins days incorrectly at the first hour. Such an hour is not informative for the
// following ones.
func oddHours(logs []float64) []bool {
	n := len(logs)
	bends, odd := make([]float64, n), make([]bool, n)
	for i := 1; i < n-1; i++ {
		bends[i] = math.Abs(logs[i] - (logs[i-1]+logs[i+1])/2)
	}
	week := make([]float64, n)
	for i := 6 * 24; i < n; i++ {
		for d := range 7 {
			week[i] += bends[i-24*d]
		}
	}
	usual := make([]float64, 24)
	for i := 8 * 24; i < n; i++ {
		own, beside := week[i-24], max(week[i-25], week[i-23])
		if own <= oddnessBeside*beside {
			continue
		}
		copy(usual, week[i-47:i-23])
		slices.Sort(usual)
		odd[i] = own > oddness*usual[12]
	}
	return odd
}
