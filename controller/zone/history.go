package zone

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/controller/signal"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
)

// A History remembers what carbon intensities and prices were. Forecasts say only what comes, and what finished work
// has emitted depends on what was.
type History struct {
	mu    sync.Mutex
	sites map[string]*siteHistory
}

// siteHistory is what is remembered of a site.
type siteHistory struct {
	units         kube.Units // of the tracks
	carbon, price signal.Track
}

// remembered is for how long: work that ran longer gets no emissions.
const remembered = 72 * time.Hour

func newTrack() signal.Track { return signal.Track{Span: remembered} }

// Signal returns the kind of the carbon intensities of all sites together, as metrics name it: sums of different kinds
// mean nothing.
func Signal(v *kube.View) string {
	all := ""
	for _, s := range v.Sites() {
		is := signal.Kind(v.Units(s.Name).Marginal)
		if all != "" && all != is {
			return "mixed"
		}
		all = is
	}
	return cmp.Or(all, signal.Kind(false))
}

// NewHistory returns a History that knows nothing.
func NewHistory() *History { return &History{sites: map[string]*siteHistory{}} }

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

// Sample notes what holds now. What is recorded of sites that are gone is forgotten, and so is what was recorded in
// other units: one track never holds both. After units have changed, nothing is recorded until the signals follow.
func (h *History) Sample(v *kube.View, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.sites, func(name string, _ *siteHistory) bool { return v.Site(name) == nil })
	for _, s := range v.Sites() {
		is, of := v.Units(s.Name), h.sites[s.Name]
		if of == nil {
			of = &siteHistory{units: kube.Units{Behind: true}, carbon: newTrack(), price: newTrack()}
			h.sites[s.Name] = of
		}
		waits := is.Behind && of.units.Behind
		if is.Marginal != of.units.Marginal {
			of.carbon, waits = newTrack(), is.Behind
		}
		if is.Currency != of.units.Currency {
			of.price, waits = newTrack(), is.Behind
		}
		of.units = kube.Units{Marginal: is.Marginal, Currency: is.Currency, Behind: waits}
		if waits {
			continue
		}
		for track, is := range map[*signal.Track]grid.Signal{&of.carbon: s.Carbon, &of.price: s.Price} {
			if is.Fresh(now, 0) {
				track.Note(now, is.Series.At(now))
			}
		}
	}
}

// during returns the carbon intensity and the price at a site in [start, end), each only if all of it is known in the
// units that the caller will call it by.
func (h *History) during(site string, units kube.Units, start, end time.Time) (carbon, price grid.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.sites[site]
	if of != nil && of.units.Marginal == units.Marginal {
		carbon.Series = of.carbon.During(start, end)
	}
	if of != nil && of.units.Currency == units.Currency {
		price.Series = of.price.During(start, end)
	}
	return carbon, price
}
