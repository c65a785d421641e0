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

// A History remembers what carbon intensities and prices were. Forecasts say only what comes, and what finished work
// has emitted depends on what was.
type History struct {
	mu    sync.Mutex
	zones map[string]*zoneHistory
}

// zoneHistory is what is remembered of a site.
type zoneHistory struct {
	known         bool     // a GridZone of that name is there
	carbon, price quantity // in units of Units.Signal and Units.Currency
}

// quantity is one signal of a site: in which unit it is, by the GridZone's spec, and from when on what a view says of
// it is in that unit: status and view follow the spec later. What comes in between is not remembered.
type quantity struct {
	track
	unit string
	from time.Time
}

// Units say what the values of a site are.
type Units struct {
	Signal   string // average or marginal
	Currency string
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
	return &History{zones: map[string]*zoneHistory{}}
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
	of := h.zone(z.Name)
	of.carbon.follow(is.Signal, from, !of.known)
	of.price.follow(is.Currency, from, !of.known)
	of.known = true
}

// follow takes note of the unit that a spec asks for, and of when views follow it. first says that nothing was known of
// the GridZone: then views of it that follow already are as good as later ones.
func (q *quantity) follow(unit string, from time.Time, first bool) {
	switch {
	case first:
		if q.unit = unit; from.Equal(neverYet) {
			q.from = from
		}
	case q.unit != unit:
		*q = quantity{unit: unit, from: from}
	case q.from.Equal(neverYet):
		q.from = from
	}
}

func (h *History) zone(name string) *zoneHistory {
	z := h.zones[name]
	if z == nil {
		z = &zoneHistory{}
		h.zones[name] = z
	}
	return z
}

// LostZone is told of every GridZone that is deleted.
func (h *History) LostZone(z *v1alpha1.GridZone) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.zones, z.Name)
}

// Units returns what the values of a site are.
func (h *History) Units(site string) Units {
	h.mu.Lock()
	defer h.mu.Unlock()
	if z := h.zones[site]; z != nil && z.known {
		return Units{Signal: z.carbon.unit, Currency: z.price.unit}
	}
	return unitsOf(&v1alpha1.GridZone{})
}

// Signal returns the kind of the carbon intensities of all sites together.
func (h *History) Signal() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := ""
	for _, z := range h.zones {
		if !z.known {
			continue
		}
		if all != "" && all != z.carbon.unit {
			return SignalMixed
		}
		all = z.carbon.unit
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

// Sample notes what holds now. What is recorded of sites that are gone is forgotten.
func (h *History) Sample(v *kube.View, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, z := range h.zones {
		if v.Site(name) == nil {
			z.carbon.track, z.price.track = track{}, track{}
		}
	}
	for _, s := range v.Sites() {
		z := h.zone(s.Name)
		z.carbon.note(s.Carbon, now)
		z.price.note(s.Price, now)
	}
}

func (q *quantity) note(s grid.Signal, now time.Time) {
	if !now.Before(q.from) {
		q.track.note(s, now)
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
		t.first, t.values, end = at, t.values[:0], at
	case at < t.first:
		return // the clock was set back by more than is remembered
	case at < end:
		t.values[at-t.first] = s.Series.At(now)
		return
	}
	filler := math.NaN()
	if at-end <= bridged && len(t.values) > 0 {
		filler = t.values[len(t.values)-1]
	}
	t.values = append(t.values, slices.Repeat([]float64{filler}, int(at-end))...)
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
	z := h.zones[site]
	if z == nil {
		return grid.Signal{}, grid.Signal{}
	}
	return z.carbon.during(start, end), z.price.during(start, end)
}
