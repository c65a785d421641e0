package forecast

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// A Trained is the model History of a zone, trained on all of its history. It is immutable and safe for concurrent
// use.
type Trained struct {
	learnt  *learnt
	horizon int // in hours
	// Error and BestError are the mean absolute percentage errors of History and of Best over the last four weeks
	// of the history, which were not used for training.
	Error, BestError float64
}

const (
	// compared is the length of the period in which History and Best are compared.
	compared = 28 * day
	// comparisonStride differs from a day, so that the forecasts of the comparison start at all hours of the day.
	comparisonStride = 25 * time.Hour
	// Recent is the length of the history that forecasts of a Trained are based on: the hours that features use, and
	// hours that determine whether such an hour is odd.
	Recent = (reach + 9*24) * time.Hour

	lowLevel, highLevel = 0.1, 0.9 // percentiles of a forecast
)

// MinTraining is the minimum length of the history for [Train] with a horizon.
func MinTraining(horizon time.Duration) time.Duration { return MinHistory + compared + horizon }

// Train trains the model History with the hourly or finer history until its end, and compares it with Best. Forecasts
// of the model cover the given horizon in full hours. Train uses a single processor, and the result only depends on its
// arguments. Two years take a few seconds.
func Train(ctx context.Context, history *grid.Series, horizon time.Duration) (*Trained, error) {
	if least := MinTraining(horizon); history == nil || history.End().Sub(history.Start()) < least {
		return nil, fmt.Errorf("history is too short for training: want at least %v", least)
	}
	windows := int(compared / comparisonStride)
	first := history.End().Truncate(time.Hour).Add(-horizon - time.Duration(windows-1)*comparisonStride)
	compared, err := Evaluate(ctx, Evaluation{
		History: history, Models: []string{History, Chosen}, First: first, Windows: windows, Stride: comparisonStride,
		Horizon: horizon, Processors: 1,
	})
	if err != nil {
		return nil, err
	}
	hours, err := fullHours(horizon)
	if err != nil {
		return nil, err
	}
	r, err := newRecord(history, nil, hours)
	if err != nil {
		return nil, err
	}
	l, err := learn(r, len(r.values), training{horizon: hours, processors: 1})
	if err != nil {
		return nil, err
	}
	return &Trained{learnt: l, horizon: hours, Error: compared[0].MAPE, BestError: compared[1].MAPE}, nil
}

// Better reports whether the model was clearly more accurate than Best. The margin avoids models that are better by
// chance.
func (m *Trained) Better() bool { return m.Error < margin*m.BestError }

// Forecast is like [Best] with the trained model. The history must be of the same zone and cover Recent. The forecast
// must end within the horizon of the model after the end of the history.
func (m *Trained) Forecast(history *grid.Series, from time.Time, horizon time.Duration) (grid.Forecast, error) {
	if history == nil {
		return grid.Forecast{}, fmt.Errorf("no history to forecast from with %s", History)
	}
	if begin := history.End().Add(-Recent); history.Start().Before(begin) {
		history = history.Between(begin, history.End())
	}
	r, err := newRecord(history, nil, m.horizon)
	if err != nil {
		return grid.Forecast{}, err
	}
	known := len(r.values)
	first := int(from.Truncate(time.Hour).Unix()/3600 - r.start)
	end := r.hourOf(from.Add(horizon))
	if first < 0 || known < int(Recent/time.Hour) || end <= first || end > known+m.horizon {
		return grid.Forecast{}, fmt.Errorf("%s of %v from %s: a history of %d hours from %s and a horizon of %d h do "+
			"not suffice", History, horizon, from.Format(time.RFC3339), known, r.timeOf(0).Format(time.RFC3339),
			m.horizon)
	}
	v := newView(r, m.learnt.shape)
	x := make([]float64, v.width+1)
	var mid, low, high []float64
	for hour := first; hour < end; hour++ {
		y, least, most := 0.0, 1.0, 1.0
		if ahead := hour - known; ahead < 0 {
			y = r.values[hour]
		} else {
			y = m.learnt.at(v, x, known, ahead)
			margins := &m.learnt.leads.margins
			least = min(1, math.Exp(margins.at(ahead, r.days[hour].hour, lowLevel)))
			most = max(1, math.Exp(margins.at(ahead, r.days[hour].hour, highLevel)))
		}
		mid, low, high = append(mid, y), append(low, y*least), append(high, y*most)
	}
	f := grid.Forecast{IssuedAt: from, Model: History}
	var errLow, errHigh error
	f.Series, err = grid.NewSeries(r.timeOf(first), time.Hour, mid)
	f.Low, errLow = grid.NewSeries(r.timeOf(first), time.Hour, low)
	f.High, errHigh = grid.NewSeries(r.timeOf(first), time.Hour, high)
	return f, cmp.Or(err, errLow, errHigh)
}
