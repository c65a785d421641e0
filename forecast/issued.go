package forecast

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/grid"
)

// Issuance says which forecasts to make over a span of a recorded history: one each hour, each knowing only what was before.
type Issuance struct {
	History *grid.Series // hourly
	Weather *Weather     // for model WithWeather: its file must reach 12 hours beyond the last forecast, or its end is repeated
	Model   string       // one of Models

	From, Until time.Time     // span of the moments at which somebody asks
	Horizon     time.Duration // 0: 96 h
	// Lag is how long after its end the value of an hour becomes known, in full hours. The hour that a forecast is asked in
	// is known if it is 0, and is forecast itself if it is an hour.
	Lag time.Duration
	// Refit is after how long a learnt model is learnt again. 0: 28 days; less: never, only before From.
	Refit     time.Duration
	Calibrate bool // shift learnt models' forecasts by what their last errors say
	Seed      uint64

	Progress func(done, total int) // after each time that a model has served; nil: nobody cares
}

// Issued are forecasts as they would have been issued over a span. It is immutable, and may be asked from many goroutines.
type Issued struct {
	model   string
	key     [sha256.Size]byte
	start   int64 // the hour of the first forecast's origin, since the epoch
	horizon int
	lag     int
	known   []float64 // value of the hour before each origin
	values  []float32 // by origin and hour ahead
	spans   []issuedSpan

	last atomic.Pointer[issuedSignal]
}

// issuedSpan are the margins of the origins before end.
type issuedSpan struct {
	end     int
	margins margins
}

type issuedSignal struct {
	origin int
	signal grid.Signal
}

// defaultRefit is how often models are learnt again: monthly is enough.
const defaultRefit = 28 * day

// check says what is wrong with the inputs.
func (o *Issuance) check() error {
	length := o.length()
	switch {
	case o.History == nil:
		return errors.New("no history to forecast from")
	case o.History.Step() != time.Hour || o.History.Start().UnixNano()%int64(time.Hour) != 0:
		return fmt.Errorf("history has a step of %v from %s: want full hours", o.History.Step(), o.History.Start().Format(time.RFC3339))
	case length < 0 || length > LearntHorizon || length%time.Hour != 0:
		return fmt.Errorf("horizon is %v: want full hours, at most %v", length, LearntHorizon)
	case !o.Until.After(o.From):
		return fmt.Errorf("span from %s until %s is empty", o.From.Format(time.RFC3339), o.Until.Format(time.RFC3339))
	case !o.History.Covers(o.From, o.Until):
		return fmt.Errorf("history, from %s until %s, does not cover %s to %s", o.History.Start().Format(time.RFC3339), o.History.End().Format(time.RFC3339), o.From.Format(time.RFC3339), o.Until.Format(time.RFC3339))
	case o.Model == WithWeather && o.Weather == nil:
		return fmt.Errorf("model %q needs weather", o.Model)
	}
	return o.checkTimes()
}

func (o *Issuance) checkTimes() error {
	switch {
	case o.Lag < 0 || o.Lag%time.Hour != 0 || o.Lag > day:
		return fmt.Errorf("lag is %v: want full hours, at most a day", o.Lag)
	case o.Refit > 0 && o.Refit < time.Hour:
		return fmt.Errorf("models are to be learnt again every %v: want an hour or more", o.Refit)
	}
	return nil
}

func (o *Issuance) length() time.Duration { return cmp.Or(o.Horizon, LearntHorizon) }

// origins returns the first origin of an issuance, as an hour since the epoch, and how many there are.
func (o *Issuance) origins() (first int64, n, horizon, lag int, err error) {
	if err := o.check(); err != nil {
		return 0, 0, 0, 0, err
	}
	lag = int(o.Lag / time.Hour)
	first = o.From.Truncate(time.Hour).Unix()/3600 + 1 - int64(lag)
	n = int(o.Until.Add(-1).Truncate(time.Hour).Sub(o.From.Truncate(time.Hour))/time.Hour) + 1
	return first, n, int(o.length() / time.Hour), lag, nil
}

// Issue makes the forecasts, on all processors; the result does not depend on how many there are. A learnt model is
// learnt again every Refit, from all that was known then; where there was less than LeastHistory, Best takes its place.
func Issue(ctx context.Context, o Issuance) (*Issued, error) {
	first, n, horizon, lag, err := o.origins()
	if err != nil {
		return nil, err
	}
	if o.Model != WithWeather {
		o.Weather = nil
	}
	r, err := newRecord(o.History, o.Weather, horizon+1)
	if err != nil {
		return nil, err
	}
	refit := cmp.Or(o.Refit, defaultRefit)
	is := &issuing{
		record: r, model: o.Model, horizon: horizon, refit: max(0, int(refit/time.Hour)), calibrate: o.Calibrate,
		options: LearnOptions{Horizon: time.Duration(horizon) * time.Hour, Seed: o.Seed},
	}
	origins := make([]int, n)
	f := &Issued{model: o.Model, key: o.key(), start: first, horizon: horizon, lag: lag, known: make([]float64, n)}
	for i := range origins {
		origins[i] = int(first-r.start) + i
		if origins[i] >= 1 {
			f.known[i] = r.values[origins[i]-1]
		}
	}
	if o.Progress != nil {
		var done atomic.Int64
		total := len(is.terms(origins))
		is.progress = func() { o.Progress(int(done.Add(1)), total) }
	}
	values, terms, err := is.issue(ctx, origins)
	if err != nil {
		return nil, fmt.Errorf("issuing forecasts with %s: %w", o.Model, err)
	}
	f.values = values
	for _, t := range terms {
		f.spans = append(f.spans, issuedSpan{end: t.end, margins: t.margins})
	}
	return f, nil
}

// key is a digest of all that the forecasts depend on.
func (o *Issuance) key() (key [sha256.Size]byte) {
	h := sha256.New()
	put := func(values ...any) {
		for _, v := range values {
			if err := binary.Write(h, binary.LittleEndian, v); err != nil {
				panic(err) // a type of ours that has no fixed size
			}
		}
	}
	first, n, horizon, lag, _ := o.origins()
	put([]byte(fmt.Sprintf("%d %s", methodVersion, o.Model)), first, int64(n), int64(horizon), int64(lag), int64(cmp.Or(o.Refit, defaultRefit)), o.Calibrate, o.Seed)
	put(o.History.Start().Unix(), int64(o.History.Step()))
	values := make([]float64, o.History.Len())
	for i := range values {
		values[i] = o.History.Value(i)
	}
	put(values)
	if o.Weather != nil && o.Model == WithWeather {
		put(o.Weather.start)
		for _, v := range o.Weather.values {
			put(v)
		}
	}
	h.Sum(key[:0])
	return key
}

// Model returns the name of the model.
func (f *Issued) Model() string { return f.model }

// Start returns the first hour of the span.
func (f *Issued) Start() time.Time { return time.Unix((f.start-1+int64(f.lag))*3600, 0).UTC() }

// End returns the first hour after the span.
func (f *Issued) End() time.Time { return f.Start().Add(time.Duration(len(f.known)) * time.Hour) }

// origin returns which of the forecasts is the last one at now, -1 if there is none yet.
func (f *Issued) origin(now time.Time) int {
	hours := now.Unix()/3600 + 1 - int64(f.lag) - f.start
	return int(max(-1, min(hours, int64(len(f.known)-1))))
}

// At returns what is known at now: the value of the present hour, unless it comes too late, and then what is forecast. It
// is absent before the span; after the span it is what was known at its end.
func (f *Issued) At(now time.Time) grid.Signal {
	i := f.origin(now)
	if i < 0 {
		return grid.Signal{}
	}
	if last := f.last.Load(); last != nil && last.origin == i {
		return last.signal
	}
	values := make([]float64, 0, f.horizon+1)
	start := f.start + int64(i)
	if f.lag == 0 {
		values = append(values, f.known[i])
		start--
	}
	for _, v := range f.values[i*f.horizon : (i+1)*f.horizon] {
		values = append(values, float64(v))
	}
	s, err := grid.NewSeries(time.Unix(start*3600, 0).UTC(), time.Hour, values)
	if err != nil {
		return grid.Signal{} // a history that is not finite was refused
	}
	signal := grid.Signal{Series: s}
	f.last.Store(&issuedSignal{origin: i, signal: signal})
	return signal
}

// Forecast returns what was forecast by now, from the first hour that was not known, with the tenth and ninetieth
// percentile where the model was learnt. It is absent before the span.
func (f *Issued) Forecast(now time.Time) grid.Forecast {
	i := f.origin(now)
	if i < 0 {
		return grid.Forecast{}
	}
	issued := time.Unix((f.start+int64(i))*3600, 0).UTC()
	values := f.values[i*f.horizon : (i+1)*f.horizon]
	series := func(q float64, m *margins, pick func(a, b float64) float64) *grid.Series {
		out := make([]float64, len(values))
		for h, v := range values {
			out[h] = float64(v)
			if m != nil {
				out[h] = pick(out[h], out[h]*math.Exp(m.at(h, q)))
			}
		}
		s, err := grid.NewSeries(issued, time.Hour, out)
		if err != nil {
			return nil // a history that is not finite was refused
		}
		return s
	}
	result := grid.Forecast{IssuedAt: issued, Model: f.model, Series: series(0, nil, nil)}
	if m := f.marginsOf(i); len(m[0]) > 0 {
		result.Low = series(.1, m, func(a, b float64) float64 { return min(a, b) })
		result.High = series(.9, m, func(a, b float64) float64 { return max(a, b) })
	}
	return result
}

func (f *Issued) marginsOf(i int) *margins {
	for j := range f.spans {
		if i < f.spans[j].end {
			return &f.spans[j].margins
		}
	}
	return &margins{}
}
