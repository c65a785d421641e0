package past

import (
	"fmt"
	"maps"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
)

const (
	// scored is how long issued forecasts are kept to compute their accuracy.
	scored = 28 * aDay
	// issuedHours is the number of hours of an issued forecast.
	issuedHours = 48
)

// leads are the lead times with a known accuracy, with their names in metrics.
var leads = []struct {
	ahead time.Duration
	name  string
}{{time.Hour, "1h"}, {6 * time.Hour, "6h"}, {24 * time.Hour, "24h"}, {48 * time.Hour, "48h"}}

// An issued is a forecast as it was issued in an hour, with the means of the following hours. Low and High are nil if
// the forecast has no percentiles.
type issued struct {
	At     time.Time `json:"at"`
	Source string    `json:"source"`
	Values []float32 `json:"values"`
	Low    []float32 `json:"low,omitempty"`
	High   []float32 `json:"high,omitempty"`
}

// dayOf returns the name of the state of the forecasts of a day. Names are used again after scored.
func dayOf(at time.Time) string {
	return fmt.Sprintf("day-%02d", at.Unix()/int64(aDay/time.Second)%int64(scored/aDay+1))
}

// Issue adds the forecast of a status, unless there is one of the same hour, and removes forecasts that are too old.
func (a *Archive) Issue(s *v1alpha1.SignalStatus, now time.Time) {
	hour := now.UTC().Truncate(time.Hour)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.issued[hour] != nil {
		return
	}
	f := &issued{At: hour, Source: s.ForecastSource}
	for _, column := range []struct {
		into *[]float32
		from []float64
	}{{&f.Values, s.Values}, {&f.Low, s.Low}, {&f.High, s.High}} {
		series, err := grid.NewSeries(s.Start.Time, s.Step.Duration, column.from)
		if err != nil {
			continue // there are no percentiles
		}
		for i := range issuedHours {
			from := hour.Add(time.Duration(i+1) * time.Hour)
			if !series.Covers(from, from.Add(time.Hour)) {
				break
			}
			*column.into = append(*column.into, float32(series.Mean(from, from.Add(time.Hour))))
		}
	}
	if len(f.Values) == 0 {
		return
	}
	maps.DeleteFunc(a.issued, func(at time.Time, _ *issued) bool { return hour.Sub(at) > scored })
	a.issued[hour] = f
	a.changed[dayOf(hour)] = true
}

// miss returns the mean of an hour, the error of the forecast that was issued the given time before, and whether the
// mean is within its percentiles. known is false if one of them is missing.
func (a *Archive) miss(hour time.Time, ahead time.Duration) (actual, off float64, inside, ranged, known bool) {
	f, i := a.issued[hour.Add(-ahead)], int(ahead/time.Hour)-1
	actual, known = a.hours.Mean(hour)
	if !known || f == nil || i >= len(f.Values) {
		return 0, 0, false, false, false
	}
	if ranged = i < len(f.Low) && i < len(f.High); ranged {
		inside = float64(f.Low[i]) <= actual && actual <= float64(f.High[i])
	}
	return actual, math.Abs(float64(f.Values[i]) - actual), inside, ranged, true
}

// Misses calls observe with the relative errors of forecasts for each hour that has been completed since the last
// call, by the name of the lead time. An hour is complete when a value of the following hour is known.
func (a *Archive) Misses(now time.Time, observe func(lead string, off float64)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	current := now.UTC().Truncate(time.Hour)
	if a.judged.IsZero() {
		a.judged = current.Add(-time.Hour)
	}
	for hour := a.judged.Add(time.Hour); hour.Before(current); hour = hour.Add(time.Hour) {
		if _, next := a.hours.Mean(hour.Add(time.Hour)); !next {
			return
		}
		a.judged = hour
		for _, l := range leads {
			if actual, off, _, _, known := a.miss(hour, l.ahead); known && actual > 0 {
				observe(l.name, off/actual)
			}
		}
	}
}

// Accuracy returns the accuracy of the forecasts of past hours, by lead time.
func (a *Archive) Accuracy(now time.Time) (all []v1alpha1.ForecastAccuracy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	current := now.UTC().Truncate(time.Hour)
	for _, l := range leads {
		var n, ranges, covered int32
		sum, sumOff := 0.0, 0.0
		for hour := current.Add(l.ahead - scored); hour.Before(current); hour = hour.Add(time.Hour) {
			actual, off, inside, ranged, known := a.miss(hour, l.ahead)
			if !known {
				continue
			}
			n, sum, sumOff = n+1, sum+math.Abs(actual), sumOff+off
			if ranged {
				ranges++
			}
			if inside {
				covered++
			}
		}
		if sum == 0 {
			continue
		}
		of := v1alpha1.ForecastAccuracy{
			Ahead: metav1.Duration{Duration: l.ahead}, ErrorPercent: percent(sumOff, sum), Forecasts: n,
		}
		if ranges > 0 {
			of.InsidePercent = new(percent(float64(covered), float64(ranges)))
		}
		all = append(all, of)
	}
	return all
}

// percent returns a percentage with one decimal.
func percent(part, whole float64) float64 { return math.Round(1000*part/whole) / 10 }
