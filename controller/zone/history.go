package zone

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
)

// A History remembers what carbon intensities and prices were. Forecasts say only what comes, and what finished work has
// emitted depends on what was.
type History struct {
	mu    sync.Mutex
	sites map[string]*siteHistory
	zones map[string]*zoneUnits
}

type siteHistory struct{ carbon, price track }

// Units say what the values of a site are.
type Units struct {
	Signal   string // average or marginal
	Currency string
}

// zoneUnits are what a GridZone's spec says, and from when on what is known of the zone is that: its status, and our
// view of it, follow the spec later. What comes in between is not remembered.
type zoneUnits struct {
	Units
	carbonFrom, priceFrom time.Time
}

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

// neverYet is a moment that does not come.
var neverYet = time.Unix(1<<40, 0)

// viewLag is how long a view may take to show what a status says.
const viewLag = 10 * time.Second

// The kinds of carbon intensity, as metrics name them. Sums of different kinds mean nothing.
const (
	SignalAverage  = "average"
	SignalMarginal = "marginal"
	SignalMixed    = "mixed" // some sites have the one, some the other
)

// NewHistory returns a History that knows nothing.
func NewHistory() *History {
	return &History{sites: map[string]*siteHistory{}, zones: map[string]*zoneUnits{}}
}

func unitsOf(z *v1alpha1.GridZone) Units {
	u := Units{Signal: SignalAverage, Currency: "unknown"}
	if z.Spec.Carbon != nil && z.Spec.Carbon.Signal == "Marginal" {
		u.Signal = SignalMarginal
	}
	if z.Spec.Price != nil {
		u.Currency = z.Spec.Price.Currency
	}
	return u
}

// SawZone is told of every GridZone that an informer adds or updates. What was recorded in other units is forgotten:
// one track never holds both.
func (h *History) SawZone(z *v1alpha1.GridZone) { h.sawZone(z, time.Now()) }

func (h *History) sawZone(z *v1alpha1.GridZone, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := unitsOf(z)
	from := neverYet // until the status follows the spec
	if z.Status.ObservedGeneration == z.Generation {
		from = now.Add(viewLag)
	}
	was := h.zones[z.Name]
	if was == nil {
		was = &zoneUnits{Units: is}
		h.zones[z.Name] = was
		if from.Equal(neverYet) {
			was.carbonFrom, was.priceFrom = from, from
		}
	}
	follow := func(start *time.Time, changed bool, forget func(*siteHistory)) {
		if changed {
			*start = from
			if s := h.sites[z.Name]; s != nil {
				forget(s)
			}
		} else if start.Equal(neverYet) {
			*start = from
		}
	}
	follow(&was.carbonFrom, was.Signal != is.Signal, func(s *siteHistory) { s.carbon = track{} })
	follow(&was.priceFrom, was.Currency != is.Currency, func(s *siteHistory) { s.price = track{} })
	was.Units = is
}

// LostZone is told of every GridZone that is deleted.
func (h *History) LostZone(z *v1alpha1.GridZone) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.zones, z.Name)
	delete(h.sites, z.Name)
}

// Units returns what the values of a site are.
func (h *History) Units(site string) Units {
	h.mu.Lock()
	defer h.mu.Unlock()
	if z := h.zones[site]; z != nil {
		return z.Units
	}
	return unitsOf(&v1alpha1.GridZone{})
}

// Signal returns the kind of the carbon intensities of all sites together.
func (h *History) Signal() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := ""
	for _, z := range h.zones {
		if all != "" && all != z.Signal {
			return SignalMixed
		}
		all = z.Signal
	}
	return cmp.Or(all, SignalAverage)
}

// Run takes samples until ctx ends.
func (h *History) Run(ctx context.Context, view func() *kube.View) error {
	const every = time.Minute
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		h.Sample(view(), time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Sample notes what holds now. Sites that are gone are forgotten.
func (h *History) Sample(v *kube.View, now time.Time) {
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
		from := h.zones[s.Name]
		if from == nil || !now.Before(from.carbonFrom) {
			known.carbon.note(s.Carbon, now)
		}
		if from == nil || !now.Before(from.priceFrom) {
			known.price.note(s.Price, now)
		}
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

// during returns what held in [start, end); no signal unless all of it is known.
func (t *track) during(start, end time.Time) grid.Signal {
	from, to := slotOf(start)-t.first, slotOf(end)-t.first
	if from < 0 || to >= int64(len(t.values)) || to < from {
		return grid.Signal{}
	}
	series, err := grid.NewSeries(time.Unix((t.first+from)*int64(slot/time.Second), 0), slot, t.values[from:to+1])
	if err != nil { // a series takes no NaN
		return grid.Signal{}
	}
	return grid.Signal{Series: series}
}

// during returns the carbon intensity and the price at a site in [start, end), each only if all of it is known.
func (h *History) during(site string, start, end time.Time) (carbon, price grid.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sites[site]
	if s == nil {
		return grid.Signal{}, grid.Signal{}
	}
	return s.carbon.during(start, end), s.price.during(start, end)
}
