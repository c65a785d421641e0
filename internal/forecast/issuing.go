package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// Chosen is the name of the model of Best, which selects one of the plain models.
const Chosen = "best"

// Models returns the names of all models that can be issued and evaluated, starting with the plain ones.
func Models() []string {
	return []string{Persistence, Yesterday, WeekMean, Blend, Chosen, History, WithWeather}
}

// MinBefore is the minimum length of the history before the first forecast.
const MinBefore = day

// issuing makes the forecasts of one model from several origins, each based only on previous values.
type issuing struct {
	*record
	training
	model string
	refit int // hours between trainings; 0 means never
	// anchor is the hour of the first training, from which refits are counted. If nil, the model is trained at the
	// first origin of a term.
	anchor    *int
	calibrate bool
	now       func() time.Time // nil if the training time is not measured
	progress  func()           // called after each term
}

// term is a period that uses the same trained model.
type term struct {
	first, end int // range of origins, by index
	learnt     int // hour of the training
	margins    margins
	prior      []prior // by day ahead
	learning   time.Duration
}

// issue returns the consecutive forecasts of all origins, which must be sorted, and the terms.
func (iss *issuing) issue(ctx context.Context, origins []int) ([]float32, []term, error) {
	if len(origins) == 0 {
		return nil, nil, errors.New("no origin to forecast from")
	}
	if first := origins[0]; first < int(MinBefore/time.Hour) {
		return nil, nil, fmt.Errorf("first forecast is at %s: want at least 24h of history before it",
			iss.timeOf(first).Format(time.RFC3339))
	}
	values := make([]float32, len(origins)*iss.horizon)
	terms := iss.terms(origins)
	err := inParallel(iss.processors, len(terms), func(i int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		defer iss.progress()
		t := &terms[i]
		return iss.serve(t, origins[t.first:t.end], values[t.first*iss.horizon:t.end*iss.horizon])
	})
	if err != nil {
		return nil, nil, err
	}
	if iss.calibrate && iss.learns() {
		iss.calibrateAll(origins, values, terms)
	}
	return values, terms, nil
}

func (iss *issuing) learns() bool {
	return iss.model == History || iss.model == WithWeather
}

// terms divides the origins into terms. Terms without origins are omitted.
func (iss *issuing) terms(origins []int) []term {
	anchor := *cmp.Or(iss.anchor, &origins[0])
	if !iss.learns() || iss.refit <= 0 {
		return []term{{end: len(origins), learnt: anchor}}
	}
	var terms []term
	for i, t := range origins {
		number := (t - anchor) / iss.refit
		if i == 0 || number != (origins[i-1]-anchor)/iss.refit {
			terms = append(terms, term{first: i, learnt: t})
			if iss.anchor != nil {
				terms[len(terms)-1].learnt = anchor + number*iss.refit
			}
		}
		terms[len(terms)-1].end = i + 1
	}
	return terms
}

// serve makes the forecasts of one term.
func (iss *issuing) serve(t *term, origins []int, into []float32) error {
	switch {
	case !iss.learns():
		return iss.plain(iss.model, origins, into)
	case t.learnt < int(MinHistory/time.Hour):
		return iss.plain(Chosen, origins, into)
	}
	var begin time.Time
	if iss.now != nil {
		begin = iss.now()
	}
	l, err := learn(iss.record, t.learnt, iss.training)
	if err != nil {
		return err
	}
	if iss.now != nil {
		t.learning = iss.now().Sub(begin)
	}
	t.margins, t.prior = l.leads.margins, l.leads.priors
	known := *iss.record
	last := origins[len(origins)-1]
	known.values, known.days = iss.values[:last], iss.days[:last+iss.horizon]
	v := newView(&known, l.shape)
	return inParallel(iss.processors, len(origins), func(i int) error {
		x := make([]float64, v.width+1)
		for h := range iss.horizon {
			into[i*iss.horizon+h] = float32(l.at(v, x, origins[i], h))
		}
		return nil
	})
}

// plain makes the forecasts of a plain model.
func (iss *issuing) plain(name string, origins []int, into []float32) error {
	last := origins[len(origins)-1]
	series, err := grid.NewSeries(iss.timeOf(0), time.Hour, iss.values[:last])
	if err != nil {
		return err
	}
	if name == Chosen {
		return inParallel(iss.processors, len(origins), func(i int) error {
			f, err := Best(series, iss.timeOf(origins[i]), time.Duration(iss.horizon)*time.Hour)
			if err != nil {
				return err
			}
			for h := range iss.horizon {
				into[i*iss.horizon+h] = float32(f.Series.Value(h))
			}
			return nil
		})
	}
	m := slices.Index(names[:], name)
	if m < 0 {
		return fmt.Errorf("unknown model %q", name)
	}
	p, err := newPast(series, series.End(), series.End().Sub(series.Start()))
	if err != nil {
		return err
	}
	for i, t := range origins {
		for h := range iss.horizon {
			into[i*iss.horizon+h] = float32(p.at(model(m), t, h))
		}
	}
	return nil
}
