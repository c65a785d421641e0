package past

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// States stores archives, see ledger.StateStore.
type States interface {
	SaveState(ctx context.Context, name string, payload []byte) error
	States(ctx context.Context, prefix string) (map[string][]byte, error)
}

const (
	// ArchiveSpan is the length of an archive. Models are trained on all of it.
	ArchiveSpan = 2 * 366 * 24 * time.Hour

	storeWithin = 10 * time.Second
	monthLayout = "2006-01"
	aDay        = 24 * time.Hour
)

// An Archive contains the hourly means of a signal over two years, and the issued forecasts of four weeks. The means
// of a calendar month are a state, and so are the forecasts of a day, so that forecasts after a restart of the
// controller are based on the same history as before. It is safe for concurrent use, except for Load and Save.
type Archive struct {
	prefix string // of the names of the states
	states States // nil if there is no store
	loaded bool

	mu      sync.Mutex
	hours   Track
	issued  map[time.Time]*issued // by hour
	judged  time.Time             // last hour returned by Misses
	changed map[string]bool       // names of the states to be stored
}

// A month is the state of a calendar month in UTC, e.g. 2026-12.
type month struct {
	Start  time.Time  `json:"start"`
	Values []*float64 `json:"values"` // by hour; nil if unknown
}

// NewArchive returns an empty archive. The names of its states start with prefix. It is not stored if states is nil.
func NewArchive(prefix string, states States) *Archive {
	return &Archive{
		prefix: prefix, states: states, hours: Track{Span: ArchiveSpan, Step: time.Hour}, changed: map[string]bool{},
		issued: map[time.Time]*issued{},
	}
}

// Note adds the hourly means of a track. The mean of the current hour is that of its values so far.
func (a *Archive) Note(track *Track, now time.Time) {
	if track.Empty() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for hour := track.Start().Truncate(time.Hour); !hour.After(now); hour = hour.Add(time.Hour) {
		if _, known := a.hours.Mean(hour); known && hour.Before(track.Start()) {
			continue // the track only knows a part of the hour
		}
		if mean, ok := track.Mean(hour); ok {
			a.set(hour, mean)
		}
	}
}

// Fill adds the means of past hours. With replace, they also replace known ones.
func (a *Archive) Fill(values map[time.Time]float64, replace bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, hour := range slices.SortedFunc(maps.Keys(values), time.Time.Compare) {
		_, known := a.hours.Mean(hour)
		if age := now.Sub(hour); (replace || !known) && age > time.Hour && age < ArchiveSpan {
			a.set(hour, values[hour])
		}
	}
}

// set sets the mean of an hour. It is rounded, so that it does not change when it is stored.
func (a *Archive) set(hour time.Time, mean float64) {
	mean = math.Round(mean*1e6) / 1e6
	if before, known := a.hours.Mean(hour); known && before == mean {
		return
	}
	a.hours.Set(hour, mean)
	a.changed[hour.UTC().Format(monthLayout)] = true
}

// Mean returns the mean of an hour. It returns false if it is unknown.
func (a *Archive) Mean(hour time.Time) (float64, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hours.Mean(hour)
}

// Longest returns the longest period without a long gap before the given time, or nil if there are no values.
func (a *Archive) Longest(end time.Time) *grid.Series {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hours.Empty() {
		return nil
	}
	return hourlyMeans(a.hours.Start(), end, true, a.hours.Mean)
}

// Load restores the archive unless it has been restored before. Values that are known take precedence. It returns an
// error if some states are damaged.
func (a *Archive) Load(ctx context.Context) error {
	if a.loaded || a.states == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	all, err := a.states.States(ctx, a.prefix)
	if all == nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded = true
	for name, text := range all {
		err = errors.Join(err, a.decode(strings.TrimPrefix(name, a.prefix), text))
	}
	return err
}

// decode adds the means or forecasts of a state that are not known.
func (a *Archive) decode(name string, text []byte) error {
	var m month
	var day []*issued
	into := any(&day)
	if _, err := time.Parse(monthLayout, name); err == nil {
		into = &m
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("state %q: %w", a.prefix+name, err)
	}
	for i, value := range m.Values {
		hour := m.Start.Add(time.Duration(i) * time.Hour)
		if _, known := a.hours.Mean(hour); !known && value != nil {
			a.hours.Set(hour, *value)
		}
	}
	for _, f := range day {
		if f != nil && a.issued[f.At] == nil {
			a.issued[f.At] = f
		}
	}
	return nil
}

// Save stores the states that have changed, if the archive has been loaded. The next call stores those with an error.
func (a *Archive) Save(ctx context.Context) error {
	if !a.loaded {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	pending := a.pending()
	for name, payload := range pending {
		if err := a.states.SaveState(ctx, a.prefix+name, payload); err != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			for name := range pending {
				a.changed[name] = true
			}
			return err
		}
	}
	return nil
}

// pending returns the states that have changed since the last call.
func (a *Archive) pending() map[string][]byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string][]byte{}
	for name := range a.changed {
		if payload, err := a.encode(name); err == nil { // values are finite
			all[name] = payload
		}
	}
	clear(a.changed)
	return all
}

// encode returns the state of a month, or the forecasts of a day.
func (a *Archive) encode(name string) ([]byte, error) {
	start, err := time.Parse(monthLayout, name)
	if err != nil {
		var day []*issued
		for at, f := range a.issued {
			if dayOf(at) == name {
				day = append(day, f)
			}
		}
		slices.SortFunc(day, func(a, b *issued) int { return a.At.Compare(b.At) })
		return json.Marshal(day)
	}
	m := month{Start: start}
	for hour := start; hour.Before(start.AddDate(0, 1, 0)); hour = hour.Add(time.Hour) {
		var value *float64
		if mean, ok := a.hours.Mean(hour); ok {
			value = &mean
		}
		m.Values = append(m.Values, value)
	}
	return json.Marshal(&m)
}
