package controller

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
)

// history remembers what carbon intensities and prices were. Forecasts say only what comes, and what finished work has
// emitted depends on what was.
type history struct {
	mu    sync.Mutex
	sites map[string]*siteHistory
}

type siteHistory struct{ carbon, price track }

// track is one value for each slot, NaN where nothing was known.
type track struct {
	first  int64 // number of the first slot since 1970
	values []float64
}

// Work that ran longer than what is remembered gets no emissions.
const (
	slot       = 5 * time.Minute
	remembered = 72 * time.Hour
	most       = int64(remembered / slot)
	bridged    = 3 // slots: a process that restarts, or a source that pauses for a moment, leaves no gap
)

func newHistory() *history { return &history{sites: map[string]*siteHistory{}} }

// run takes samples until ctx ends.
func (h *history) run(ctx context.Context, view func() *kube.View) error {
	const every = time.Minute
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		h.sample(view(), time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// sample notes what holds now. Sites that are gone are forgotten.
func (h *history) sample(v *kube.View, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.sites {
		if v.Site(name) == nil {
			delete(h.sites, name)
		}
	}
	for _, s := range v.Sites() {
		known := h.sites[s.Name]
		if known == nil {
			known = &siteHistory{}
			h.sites[s.Name] = known
		}
		known.carbon.note(s.Carbon, now)
		known.price.note(s.Price, now)
	}
}

func (t *track) note(s grid.Signal, now time.Time) {
	if !s.Fresh(now, 0) {
		return
	}
	at := slotOf(now)
	end := t.first + int64(len(t.values))
	switch {
	case len(t.values) == 0 || at-end >= most:
		t.first, t.values = at, t.values[:0]
	case at < t.first:
		return // the clock was set back by more than is remembered
	case at < end:
		t.values[at-t.first] = s.Series.At(now)
		return
	}
	filler := math.NaN()
	if end = t.first + int64(len(t.values)); at-end <= bridged && len(t.values) > 0 {
		filler = t.values[len(t.values)-1]
	}
	for range at - end {
		t.values = append(t.values, filler)
	}
	t.values = append(t.values, s.Series.At(now))
	if over := int64(len(t.values)) - most; over > 0 {
		t.values = slices.Delete(t.values, 0, int(over))
		t.first += over
	}
}

func slotOf(t time.Time) int64 { return t.Unix() / int64(slot/time.Second) }

// during returns what held in [start, end), if all of it is known.
func (t *track) during(start, end time.Time) (grid.Signal, bool) {
	from, to := slotOf(start)-t.first, slotOf(end)-t.first
	if from < 0 || to >= int64(len(t.values)) || to < from {
		return grid.Signal{}, false
	}
	series, err := grid.NewSeries(time.Unix((t.first+from)*int64(slot/time.Second), 0), slot, t.values[from:to+1])
	return grid.Signal{Series: series}, err == nil // a series takes no NaN
}

// carbon returns the carbon intensity of a site in [start, end), if all of it is known.
func (h *history) carbon(site string, start, end time.Time) (grid.Signal, bool) {
	return h.look(site, start, end, func(s *siteHistory) *track { return &s.carbon })
}

// price returns the price at a site in [start, end), if all of it is known.
func (h *history) price(site string, start, end time.Time) (grid.Signal, bool) {
	return h.look(site, start, end, func(s *siteHistory) *track { return &s.price })
}

func (h *history) look(site string, start, end time.Time, of func(*siteHistory) *track) (grid.Signal, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sites[site]
	if s == nil {
		return grid.Signal{}, false
	}
	return of(s).during(start, end)
}
