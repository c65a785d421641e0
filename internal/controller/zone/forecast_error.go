package zone

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// foretold contains the forecasts for hours that have not passed yet.
type foretold struct {
	zone grid.Zone
	hour time.Time // the hour of the last call of look
	of   map[time.Time][]float64
}

// look runs once per hour. It stores the forecasts for later hours and reports the relative error of the forecasts
// for the hour that has just passed. Hours that were not recorded completely or have a mean of 0 are skipped.
func (f *foretold) look(s *grid.Series, previous *signal.Track, now time.Time,
	notify func(ahead string, miss float64),
) {
	hour := now.UTC().Truncate(time.Hour)
	if !hour.After(f.hour) {
		return
	}
	f.hour = hour
	if f.of == nil {
		f.of = map[time.Time][]float64{}
	}
	over := hour.Add(-time.Hour)
	if known := previous.During(over, hour); known != nil && known.Mean(over, hour) > 0 {
		actual := known.Mean(over, hour)
		for i, said := range f.of[over] {
			if !math.IsNaN(said) {
				notify(horizons[i].name, math.Abs(said-actual)/actual)
			}
		}
	}
	maps.DeleteFunc(f.of, func(of time.Time, _ []float64) bool { return !of.After(over) })
	for i, h := range horizons {
		due := hour.Add(h.ahead)
		if f.of[due] == nil {
			f.of[due] = slices.Repeat([]float64{math.NaN()}, len(horizons))
		}
		if s.Covers(due, due.Add(time.Hour)) {
			f.of[due][i] = s.Mean(due, due.Add(time.Hour))
		}
	}
}
