package forecast

import (
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// Score contains the accuracy of a model over all windows of a backtest.
type Score struct {
	Model    string    // name of a plain model, or BestModel
	MAPE     float64   // mean absolute percentage error over all leads
	ByDay    []float64 // the same for each day of lead
	Coverage float64   // fraction of values within the 80 % interval; NaN for plain models, which have no intervals
	Windows  int
}

// BestModel is the model name of Best in a Score.
const BestModel = "best"

// Backtest repeatedly forecasts the recorded series, at from and then at the given interval, while the whole
// horizon is within the series. Each forecast only uses previous values. It returns the scores of each model and of
// Best. All values must be positive, because percentage errors are not meaningful otherwise.
func Backtest(series *grid.Series, from time.Time, every, horizon time.Duration) ([]Score, error) {
	if every <= 0 || horizon <= 0 || horizon > MaxHorizon {
		return nil, fmt.Errorf("backtest over %v every %v: want positive values, and a horizon of at most %v",
			horizon, every, MaxHorizon)
	}
	// The plain models are prepared once, because past.at ignores values that are not yet known.
	p, err := newPast(series, series.End(), series.End().Sub(series.Start()))
	if err != nil {
		return nil, err
	}
	for i, v := range p.values {
		if v <= 0 {
			return nil, fmt.Errorf("value %d is %v: want positive values for percentage errors", i, v)
		}
	}
	if from.Before(series.Start().Add(day)) {
		return nil, fmt.Errorf("first forecast is at %s: want at least 24h of history", from.Format(time.RFC3339))
	}
	b := backtest{past: p, tallies: make([]tally, models+1), leads: int(horizon / p.step)}
	for m := range b.tallies {
		b.tallies[m].days = make([]mean, (horizon+day-1)/day)
	}
	windows := 0
	for t := from; !t.Add(horizon).After(series.End()); t = t.Add(every) {
		f, err := Best(series, t, horizon)
		if err != nil {
			return nil, err
		}
		b.window(t, f)
		windows++
	}
	if windows == 0 {
		return nil, fmt.Errorf("no window of %v from %s is within the series, which ends at %s", horizon,
			from.Format(time.RFC3339), series.End().Format(time.RFC3339))
	}
	scores := make([]Score, 0, len(b.tallies))
	for m := range b.tallies {
		name := BestModel
		if m < models {
			name = names[m]
		}
		s := b.tallies[m].score(name)
		s.Windows = windows
		scores = append(scores, s)
	}
	return scores, nil
}

// backtest is a backtest in progress. The last tally belongs to Best.
type backtest struct {
	*past
	tallies []tally
	leads   int
}

// window compares the forecasts of one origin with the actual values.
func (b *backtest) window(t time.Time, best grid.Forecast) {
	known := int((t.Sub(b.start) + b.step - 1) / b.step)
	for lead := range b.leads {
		y := b.values[known+lead]
		for m := range models {
			b.tallies[m].add(y, b.at(model(m), known, lead), lead/b.perDay)
		}
		at := b.start.Add(time.Duration(known+lead) * b.step)
		b.tallies[models].add(y, best.Series.At(at), lead/b.perDay)
		if best.Low != nil {
			b.tallies[models].within(y >= best.Low.At(at) && y <= best.High.At(at))
		}
	}
}

// tally sums up the errors of one model.
type tally struct {
	all, inside mean
	days        []mean
}

func (t *tally) add(y, p float64, day int) {
	e := 100 * math.Abs(y-p) / y
	t.all.add(e)
	t.days[day].add(e)
}

func (t *tally) within(yes bool) {
	v := 0.0
	if yes {
		v = 1
	}
	t.inside.add(v)
}

func (t *tally) score(name string) Score {
	s := Score{Model: name, MAPE: t.all.value(), Coverage: t.inside.value()}
	for _, d := range t.days {
		s.ByDay = append(s.ByDay, d.value())
	}
	return s
}

type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) { m.sum += v; m.n++ }

// value returns the mean, or NaN if no value was added.
func (m *mean) value() float64 { return m.sum / float64(m.n) }
