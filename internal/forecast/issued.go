package forecast

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Issuance describes the forecasts to make over a period of a recorded history: one per hour, each based only on
// previous values.
type Issuance struct {
	History *grid.Series // hourly
	// Weather is required by the model WithWeather, for all hours of the history and of the last forecast.
	Weather *Weather
	Model   string // one of Models

	From, Until time.Time     // period in which forecasts are requested
	Only        []Span        // parts of the period with requests, ordered by start; empty means all of it
	Horizon     time.Duration // 0 means 96 h
	// Lag is the delay between the start of an hour and the availability of its value, in full hours. With a lag of
	// 0, the current hour is known. With a lag of one hour, it is part of the forecast.
	Lag time.Duration
	// Refit is the interval between trainings of a model. 0 means 28 days. With a negative value, the model is only
	// trained before Since.
	Refit time.Duration
	// Since is the start of the training schedule. Models are trained every Refit after it with the data available
	// then, independent of From, so that a forecast does not depend on the requested period. Zero means From.
	Since time.Time
	Seed  uint64
}

// Span is the half-open time interval [From, Until).
type Span struct{ From, Until time.Time }

// Issued contains the forecasts that would have been issued over a period. It is immutable and safe for concurrent
// use.
type Issued struct {
	issuedFile

	last atomic.Pointer[issuedSignal]
}

type issuedSignal struct {
	origin int
	signal grid.Signal
}

// defaultRefit is the default interval between trainings. Training once a month is sufficient.
const defaultRefit = 28 * day

// fullHours returns the horizon in hours. 0 means the maximum horizon of trained models.
func fullHours(horizon time.Duration) (int, error) {
	if horizon < 0 || horizon > LearntHorizon || horizon%time.Hour != 0 {
		return 0, fmt.Errorf("horizon is %v: want full hours, at most %v", horizon, LearntHorizon)
	}
	return int(cmp.Or(horizon, LearntHorizon) / time.Hour), nil
}

// check validates the inputs.
func (o *Issuance) check() error {
	_, err := fullHours(o.Horizon)
	switch {
	case o.History == nil:
		return errors.New("no history to forecast from")
	case o.History.Step() != time.Hour || o.History.Start().UnixNano()%int64(time.Hour) != 0:
		return fmt.Errorf("history has a step of %v from %s: want full hours", o.History.Step(),
			o.History.Start().Format(time.RFC3339))
	case err != nil:
		return err
	case !o.Until.After(o.From):
		return fmt.Errorf("period from %s to %s is empty", o.From.Format(time.RFC3339), o.Until.Format(time.RFC3339))
	case !o.History.Covers(o.From, o.Until):
		return fmt.Errorf("history from %s to %s does not cover %s to %s", o.History.Start().Format(time.RFC3339),
			o.History.End().Format(time.RFC3339), o.From.Format(time.RFC3339), o.Until.Format(time.RFC3339))
	case o.Model == WithWeather && o.Weather == nil:
		return fmt.Errorf("model %q requires weather", o.Model)
	}
	return errors.Join(o.checkTimes(), o.checkWeather())
}

// checkWeather returns an error if the weather does not cover all hours of the training and of the forecasts.
func (o *Issuance) checkWeather() error {
	if o.Model != WithWeather {
		return nil
	}
	// Forecasts beyond the end of the history cannot be compared with actual values.
	until := timeutil.Earlier(o.Until.Add(o.length()), o.History.End())
	return o.Weather.covers(o.History.Start(), until)
}

func (o *Issuance) checkTimes() error {
	for i, s := range o.Only {
		if s.From.Before(o.From) || s.Until.After(o.Until) || !s.Until.After(s.From) ||
			i > 0 && s.From.Before(o.Only[i-1].From) {
			return fmt.Errorf("part from %s to %s is empty, out of order or outside of the period",
				s.From.Format(time.RFC3339), s.Until.Format(time.RFC3339))
		}
	}
	switch {
	case o.Since.After(o.From):
		return fmt.Errorf("training starts at %s, after the first forecast at %s", o.Since.Format(time.RFC3339),
			o.From.Format(time.RFC3339))
	case o.Lag < 0 || o.Lag%time.Hour != 0 || o.Lag > day:
		return fmt.Errorf("lag is %v: want full hours, at most 24h", o.Lag)
	case o.Refit > 0 && o.Refit < time.Hour:
		return fmt.Errorf("refit interval is %v: want at least one hour", o.Refit)
	}
	return nil
}

func (o *Issuance) length() time.Duration { return cmp.Or(o.Horizon, LearntHorizon) }

// origin returns the origin of the forecast that is current at the given time, in hours since the epoch.
func (o *Issuance) origin(at time.Time) int64 {
	return at.Truncate(time.Hour).Unix()/3600 + 1 - int64(o.Lag/time.Hour)
}

// origins returns the origins of an issuance, in hours since the epoch.
func (o *Issuance) origins() (hours []int64) {
	only := o.Only
	if len(only) == 0 {
		only = []Span{{o.From, o.Until}}
	}
	for _, s := range only {
		from := o.origin(s.From)
		if n := len(hours); n > 0 {
			from = max(from, hours[n-1]+1) // parts may overlap
		}
		for h := from; h <= o.origin(s.Until.Add(-1)); h++ {
			hours = append(hours, h)
		}
	}
	return hours
}

// anchor returns the hour of the first training, in hours since the epoch.
func (o *Issuance) anchor() int64 {
	if o.Since.IsZero() {
		return o.origin(o.From)
	}
	return o.origin(o.Since)
}

// Issue makes the forecasts, using all processors. The result does not depend on the number of processors. A
// trained model is trained again every Refit with all data known at that time. With less data than MinHistory, Best
// is used instead.
func Issue(ctx context.Context, o Issuance) (*Issued, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	hours := o.origins()
	if o.Model != WithWeather {
		o.Weather = nil
	}
	horizon := int(o.length() / time.Hour)
	r, err := newRecord(o.History, o.Weather, horizon+1)
	if err != nil {
		return nil, err
	}
	refit := cmp.Or(o.Refit, defaultRefit)
	current := &issuing{
		record: r, training: training{horizon: horizon, seed: o.Seed}, model: o.Model,
		refit: max(0, int(refit/time.Hour)), anchor: new(int(o.anchor() - r.start)), progress: func() {},
	}
	f := &Issued{issuedFile: issuedFile{
		Key: o.key(), Name: o.Model, Hours: hours, Horizon: horizon, Lag: int(o.Lag / time.Hour),
		Known: make([]float64, len(hours)),
	}}
	origins := make([]int, len(hours))
	for i, hour := range hours {
		origins[i] = int(hour - r.start)
		if origins[i] >= 1 {
			f.Known[i] = r.values[origins[i]-1]
		}
	}
	if f.Values, _, err = current.issue(ctx, origins); err != nil {
		return nil, fmt.Errorf("issuing forecasts with %s: %w", o.Model, err)
	}
	return f, nil
}

// key returns a digest of all inputs of the forecasts.
func (o *Issuance) key() (key [sha256.Size]byte) {
	h := sha256.New()
	put := func(values ...any) {
		for _, v := range values {
			if err := binary.Write(h, binary.LittleEndian, v); err != nil {
				panic(err) // a type without a fixed size is a programming error
			}
		}
	}
	put([]byte(fmt.Sprintf("%d %s", methodVersion, o.Model)), o.origins(), o.anchor(), int64(o.length()), int64(o.Lag),
		int64(cmp.Or(o.Refit, defaultRefit)), o.Seed)
	put(o.History.Start().Unix(), int64(o.History.Step()))
	put(o.History.Values(0, o.History.Len()))
	if o.Weather != nil && o.Model == WithWeather {
		put(o.Weather.start)
		for _, v := range o.Weather.values {
			put(v)
		}
	}
	h.Sum(key[:0])
	return key
}

// At returns the signal known at now: the value of the current hour, unless it is delayed by the lag, followed by
// the forecast. It returns an empty signal before the period. After a part of Only, it returns the last forecast of
// that part.
func (f *Issued) At(now time.Time) grid.Signal {
	next, _ := slices.BinarySearch(f.Hours, now.Unix()/3600+2-int64(f.Lag)) // first origin after now
	i := next - 1
	if i < 0 {
		return grid.Signal{}
	}
	if last := f.last.Load(); last != nil && last.origin == i {
		return last.signal
	}
	start := f.Hours[i]
	values := make([]float64, 0, f.Horizon+1)
	if f.Lag == 0 {
		values = append(values, f.Known[i])
		start--
	}
	for _, v := range f.Values[i*f.Horizon : (i+1)*f.Horizon] {
		values = append(values, float64(v))
	}
	s, err := grid.NewSeries(time.Unix(start*3600, 0).UTC(), time.Hour, values)
	if err != nil {
		return grid.Signal{} // histories with infinite values have been rejected
	}
	signal := grid.Signal{Series: s}
	f.last.Store(&issuedSignal{origin: i, signal: signal})
	return signal
}
