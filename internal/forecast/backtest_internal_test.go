package forecast

import (
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// Score is how a model did over all windows of a backtest.
type Score struct {
	Model    string    // a model of this package, or BestModel
	MAPE     float64   // mean absolute percentage error over all leads
	ByDay    []float64 // the same for each day of lead
	Coverage float64   // share of values within the 80 % interval; NaN for a model by itself, which gives none
	Windows  int
}

// BestModel names, in a Score, what Best does.
const BestModel = "best"

// Backtest forecasts the recorded series again and again, at from and every so often after that, as long as the whole
// horizon lies in the series, each time knowing only what was before, and scores each model and the choice of Best. A
// percentage error means something for positive values only.
func Backtest(series *grid.Series, from time.Time, every, horizon time.Duration) ([]Score, error) {
	if every <= 0 || horizon <= 0 || horizon > MaxHorizon {
		return nil, fmt.Errorf("a forecast over %v every %v: want more than 0, and at most %v ahead", horizon, every,
			MaxHorizon)
	}
	// Of the plain models all is prepared once: at looks at nothing beyond what is known.
	p, err := newPast(series, series.End(), series.End().Sub(series.Start()))
	if err != nil {
		return nil, err
	}
	for i, v := range p.values {
		if v <= 0 {
			return nil, fmt.Errorf("value %d is %v: want positive values for errors in percent", i, v)
		}
	}
	if from.Before(series.Start().Add(day)) {
		return nil, fmt.Errorf("first forecast at %s: want at least 24h of history before", from.Format(time.RFC3339))
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
		return nil, fmt.Errorf("no window of %v from %s lies in a series that ends at %s", horizon,
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

// backtest is a backtest in progress. Of the tallies the last one is that of Best.
type backtest struct {
	*past
	tallies []tally
	leads   int
}

// window holds the forecasts of one moment against what came.
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

// tally collects the errors of one model.
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

// value is NaN where nothing was added.
func (m *mean) value() float64 { return m.sum / float64(m.n) }
