package signal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
	monthLayout = "2006-01"
	retryPast   = time.Hour
)

// An archive contains the hourly means of a signal over two years, and the issued forecasts of four weeks. The means
// of a calendar month are a state, and so are the forecasts of a day, so that forecasts after a restart of the
// controller are based on the same history as before.
type archive struct {
	prefix string // of the names of the states
	states States // nil if nothing is stored
	loaded bool   // accessed by the polling goroutine only

	mu      sync.Mutex
	hours   Track
	issued  map[time.Time]*issued // by hour
	changed map[string]bool       // months and days to be stored, e.g. 2026-12 and 2026-12-24
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
		hours: Track{Span: archiveSpan, Step: time.Hour}, changed: map[string]bool{},
		issued: map[time.Time]*issued{},
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
	a.changed[hour.Format(monthLayout)] = true
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
		err = errors.Join(err, a.decode(name, text))
	}
	return err
}

// decode adds the values or forecasts of a state, except those that are known.
func (a *archive) decode(name string, text []byte) error {
	var m month
	var day []*issued
	if _, err := time.Parse(monthLayout, strings.TrimPrefix(name, a.prefix)); err == nil {
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("state %q: %w", name, err)
		}
	} else if err := json.Unmarshal(text, &day); err != nil {
		return fmt.Errorf("state %q: %w", name, err)
	}
	for i, value := range m.Values {
		hour := m.Start.Add(time.Duration(i) * time.Hour)
		if _, known := a.hours.mean(hour); !known && value != nil {
			a.hours.set(a.hours.slotOf(hour), *value)
		}
	}
	for _, f := range day {
		if f != nil && a.issued[f.At] == nil {
			a.issued[f.At] = f
		}
	}
	return nil
}

// encode returns a state. Its name is a month or a day.
func (a *archive) encode(name string) ([]byte, error) {
	start, err := time.Parse(monthLayout, name)
	if err != nil {
		if start, err = time.Parse(time.DateOnly, name); err != nil {
			return nil, err
		}
		var day []*issued
		for h := range 24 {
			day = append(day, a.issued[start.Add(time.Duration(h)*time.Hour)])
		}
		return json.Marshal(day)
	}
	m := month{Start: start}
	for hour := start; hour.Before(start.AddDate(0, 1, 0)); hour = hour.Add(time.Hour) {
		var value *float64
		if mean, ok := a.hours.mean(hour); ok {
			value = &mean
		}
		m.Values = append(m.Values, value)
	}
	return json.Marshal(&m)
}

// save stores the months and days that have changed. The next call stores those that could not be stored.
func (a *archive) save(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	pending, err := a.pending()
	for name, payload := range pending {
		if failed := a.states.SaveState(ctx, a.prefix+name, payload); failed != nil {
			err = errors.Join(err, failed)
			a.mu.Lock()
			a.changed[name] = true
			a.mu.Unlock()
		}
	}
	return err
}

// pending returns the states that have changed since the last call.
func (a *archive) pending() (all map[string][]byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all = map[string][]byte{}
	for name := range a.changed {
		payload, failed := a.encode(name)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		all[name] = payload
	}
	clear(a.changed)
	return all, err
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
