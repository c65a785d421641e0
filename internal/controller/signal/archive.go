package signal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// States stores the histories of signals, see ledger.StateStore.
type States interface {
	SaveState(ctx context.Context, name string, payload []byte) error
	States(ctx context.Context, prefix string) (map[string][]byte, error)
}

const (
	// archiveSpan is the length of an archive. Models are trained on all of it.
	archiveSpan = 2 * 366 * 24 * time.Hour
	storeWithin = 10 * time.Second
	retryPast   = time.Hour
)

// An archive contains the hourly means of a signal over two years. Each calendar month is a state, so that forecasts
// after a restart of the controller are based on the same history as before.
type archive struct {
	prefix string // of the names of the states
	states States // nil if nothing is stored
	loaded bool   // accessed by the polling goroutine only

	mu      sync.Mutex
	hours   Track
	changed map[time.Time]bool // months to be stored, by their start
}

// A month is the state of a calendar month in UTC.
type month struct {
	Start  time.Time  `json:"start"`
	Values []*float64 `json:"values"` // by hour; nil if unknown
}

// newArchive returns the archive of a signal. Values of another kind, of another currency or primarily from another
// kind of source have an archive of their own.
func newArchive(w terms, source string, states States) *archive {
	unit := w.currency
	if w.quantity == carbon {
		unit = Kind(w.marginal)
	}
	return &archive{
		prefix: fmt.Sprintf("signal/%s/%s/%s/%s/", w.zone, w.quantity, unit, source), states: states,
		hours: Track{Span: archiveSpan, Step: time.Hour}, changed: map[time.Time]bool{},
	}
}

// note adds the hourly means of a track. The mean of the current hour is that of its values so far.
func (a *archive) note(past *Track, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(past.values) == 0 {
		return
	}
	current := now.UTC().Truncate(time.Hour)
	for hour := past.start().Truncate(time.Hour); !hour.After(current); hour = hour.Add(time.Hour) {
		if _, known := a.hours.mean(hour); known && hour.Before(past.start()) {
			continue // the track only knows a part of the hour
		}
		if mean, ok := past.mean(hour); ok {
			a.set(hour, mean)
		}
	}
}

// fill adds past values in full hours without one.
func (a *archive) fill(points []Point, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range points {
		hour := p.Time.UTC().Truncate(time.Hour)
		if _, known := a.hours.mean(hour); !known && now.Sub(hour) > time.Hour {
			a.set(hour, p.Value)
		}
	}
}

// set sets the mean of an hour. It is rounded, so that it does not change when it is stored.
func (a *archive) set(hour time.Time, mean float64) {
	mean = math.Round(mean*1e6) / 1e6
	if before, known := a.hours.mean(hour); known && before == mean {
		return
	}
	a.hours.set(a.hours.slotOf(hour), mean)
	a.changed[time.Date(hour.Year(), hour.Month(), 1, 0, 0, 0, 0, time.UTC)] = true
}

// mean returns the mean of an hour. It returns false if it is unknown.
func (a *archive) mean(hour time.Time) (float64, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hours.mean(hour)
}

// until returns the hours before the given time, starting after the last long gap, or nil if there are none.
func (a *archive) until(end time.Time) *grid.Series {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.hours.values) == 0 {
		return nil
	}
	return hourlyMeans(a.hours.start(), end, a.hours.mean)
}

// load restores the stored months. Values that have been noted before take precedence.
func (a *archive) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	all, err := a.states.States(ctx, a.prefix)
	if err != nil && len(all) == 0 {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded = true
	for name, text := range all {
		var m month
		if damaged := json.Unmarshal(text, &m); damaged != nil {
			err = errors.Join(err, fmt.Errorf("state %q: %w", name, damaged))
			continue
		}
		for i, value := range m.Values {
			hour := m.Start.Add(time.Duration(i) * time.Hour)
			if _, known := a.hours.mean(hour); !known && value != nil {
				a.hours.set(a.hours.slotOf(hour), *value)
			}
		}
	}
	return err
}

// save stores the months that have changed. The next call stores those that could not be stored.
func (a *archive) save(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	var errs []error
	for start, payload := range a.pending() {
		err := a.states.SaveState(ctx, a.prefix+start.Format("2006-01"), payload)
		if errs = append(errs, err); err != nil {
			a.mu.Lock()
			a.changed[start] = true
			a.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// pending returns the states of the months that have changed since the last call.
func (a *archive) pending() map[time.Time][]byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[time.Time][]byte{}
	for start := range a.changed {
		m := month{Start: start}
		for hour := start; hour.Before(start.AddDate(0, 1, 0)); hour = hour.Add(time.Hour) {
			var value *float64
			if mean, ok := a.hours.mean(hour); ok {
				value = &mean
			}
			m.Values = append(m.Values, value)
		}
		if payload, err := json.Marshal(&m); err == nil { // values are finite
			all[start] = payload
		}
	}
	clear(a.changed)
	return all
}

// pastSource is a source that provides past values in full hours.
type pastSource interface {
	Past(ctx context.Context, now time.Time) ([]Point, error)
}

// restore loads the archive, and fills hours without a value, for example while the controller was down, from sources
// that provide past values. It retries the latter after an hour.
func (k *Keeper) restore(ctx context.Context, now time.Time) {
	log := k.deps.Log.With("zone", k.terms.zone, "quantity", k.terms.quantity)
	if !k.archive.loaded && k.archive.states != nil {
		if err := k.archive.load(ctx); err != nil {
			log.Warn("Failed to read the history of a signal", "err", err)
		}
	}
	if now.Before(k.retry) {
		return
	}
	k.retry = now.Add(retryPast)
	k.past = slices.DeleteFunc(k.past, func(l *link) bool {
		points, err := l.source.(pastSource).Past(ctx, now)
		if err != nil {
			log.Warn("Failed to read the past values of a signal source", "source", l.name, "err", l.concealed(err))
			return false
		}
		invalid := func(p Point) bool { return k.terms.value(p) != nil || p.Time.Before(now.Add(-archiveSpan)) }
		k.archive.fill(slices.DeleteFunc(points, invalid), now)
		return true
	})
}

// store stores the history.
func (k *Keeper) store(ctx context.Context) {
	if !k.archive.loaded {
		return
	}
	if err := k.archive.save(ctx); err != nil {
		k.deps.Log.Warn("Failed to store the history of a signal", "zone", k.terms.zone, "quantity", k.terms.quantity,
			"err", err)
	}
}
