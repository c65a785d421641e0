package signal

import (
	"maps"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// scored is the time for which issued forecasts are kept to compute their accuracy.
const scored = 28 * 24 * time.Hour

// leads are the lead times with a known accuracy, with their names in metrics.
var leads = []struct {
	ahead time.Duration
	name  string
}{{time.Hour, "1h"}, {6 * time.Hour, "6h"}, {24 * time.Hour, "24h"}, {48 * time.Hour, "48h"}}

// An issued is a forecast as it was issued, with the means of the hours after At. Low and High are nil if the forecast
// has no percentiles.
type issued struct {
	At     time.Time `json:"at"`
	Source string    `json:"source"`
	Values []float32 `json:"values"`
	Low    []float32 `json:"low,omitempty"`
	High   []float32 `json:"high,omitempty"`
}

// issue adds the forecast of a status, unless there is one of the same hour, and removes those that are too old.
// It reports whether the forecast was added.
func (a *archive) issue(s *v1alpha1.SignalStatus, now time.Time) bool {
	hour := now.UTC().Truncate(time.Hour)
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &issued{At: hour, Source: s.ForecastSource}
	for _, column := range []struct {
		into *[]float32
		from []float64
	}{{&f.Values, s.Values}, {&f.Low, s.Low}, {&f.High, s.High}} {
		series, err := grid.NewSeries(s.Start.Time, s.Step.Duration, column.from)
		if err != nil {
			continue // there are no percentiles
		}
		for i := range int(horizon / time.Hour) {
			from := hour.Add(time.Duration(i+1) * time.Hour)
			if !series.Covers(from, from.Add(time.Hour)) {
				break
			}
			*column.into = append(*column.into, float32(series.Mean(from, from.Add(time.Hour))))
		}
	}
	if a.issued[hour] != nil || len(f.Values) == 0 {
		return false
	}
	maps.DeleteFunc(a.issued, func(at time.Time, _ *issued) bool { return hour.Sub(at) > scored })
	a.issued[hour] = f
	a.changed[hour.Truncate(24*time.Hour).Format(time.DateOnly)] = true
	return true
}

// miss returns the recorded mean of an hour, the error of the forecast that was issued the given time before, and
// whether the mean is within its percentiles. known is false if one of them is missing.
func (a *archive) miss(hour time.Time, ahead time.Duration) (actual, off float64, inside, ranged, known bool) {
	f, i := a.issued[hour.Add(-ahead)], int(ahead/time.Hour)-1
	actual, known = a.hours.mean(hour)
	if !known || f == nil || i >= len(f.Values) {
		return 0, 0, false, false, false
	}
	if ranged = i < len(f.Low) && i < len(f.High); ranged {
		inside = float64(f.Low[i]) <= actual && actual <= float64(f.High[i])
	}
	return actual, math.Abs(float64(f.Values[i]) - actual), inside, ranged, true
}

// accuracy returns the accuracy of the forecasts of hours that have passed, by lead time.
func (a *archive) accuracy(now time.Time) (all []v1alpha1.ForecastAccuracy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	current := now.UTC().Truncate(time.Hour)
	for _, l := range leads {
		var n, ranges, covered int32
		sum, off := 0.0, 0.0
		for hour := current.Add(l.ahead - scored); hour.Before(current); hour = hour.Add(time.Hour) {
			actual, miss, inside, ranged, known := a.miss(hour, l.ahead)
			if !known {
				continue
			}
			n, sum, off = n+1, sum+math.Abs(actual), off+miss
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
			Ahead: metav1.Duration{Duration: l.ahead}, ErrorPercent: percent(off, sum), Forecasts: n,
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

// score adds a forecast to the archive, observes the relative errors of the forecasts for the hour that has just
// passed, and adds the accuracy to the status.
func (k *Keeper) score(s *v1alpha1.SignalStatus, now time.Time) {
	if k.archive.issue(s, now) && k.terms.quantity == carbon {
		k.archive.mu.Lock()
		passed := now.UTC().Truncate(time.Hour).Add(-time.Hour)
		for _, l := range leads {
			if actual, off, _, _, known := k.archive.miss(passed, l.ahead); known && actual > 0 {
				k.deps.Metrics.misses.WithLabelValues(string(k.terms.zone), l.name).Observe(off / actual)
			}
		}
		k.archive.mu.Unlock()
	}
	s.Accuracy = k.archive.accuracy(now)
}
