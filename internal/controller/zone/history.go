package zone

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/past"
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// A History records past carbon intensities and prices, which forecasts do not contain, to compute the emissions of
// finished work. It is safe for concurrent use.
type History struct {
	mu    sync.Mutex
	sites map[string]*siteHistory
}

// siteHistory is the history of a site.
type siteHistory struct {
	units         kube.Units // units of the tracks
	carbon, price past.Track
}

// remembered is the length of the history. Emissions of work that ran longer are unknown.
const remembered = 72 * time.Hour

func newTrack() past.Track { return past.Track{Span: remembered} }

// Signal returns the kind of carbon intensity that all sites use, as a metric label, or "mixed" if they differ,
// because sums over different kinds have no meaning.
func Signal(v *kube.View) string {
	all := ""
	for _, s := range v.Sites() {
		kind := signal.Kind(v.Units(s.Name).Marginal)
		if all != "" && all != kind {
			return "mixed"
		}
		all = kind
	}
	return cmp.Or(all, signal.Kind(false))
}

// NewHistory returns an empty History.
func NewHistory() *History { return &History{sites: map[string]*siteHistory{}} }

// Run takes a sample every second until ctx is done.
func (h *History) Run(ctx context.Context, view func() *kube.View) error {
	for again := true; again; again = kube.Pause(ctx, time.Second) {
		daemon.Round(ctx, func() { h.Sample(view(), time.Now()) })
	}
	return nil
}

// Sample records the current values of all sites. It deletes the history of sites that no longer exist and of
// signals that have changed their units, so that a track never mixes units. After a change of units, it records no
// values until the signals use the new units.
func (h *History) Sample(v *kube.View, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.sites, func(name string, _ *siteHistory) bool { return v.Site(name) == nil })
	for _, s := range v.Sites() {
		current, of := v.Units(s.Name), h.sites[s.Name]
		if of == nil {
			of = &siteHistory{units: kube.Units{Behind: true}, carbon: newTrack(), price: newTrack()}
			h.sites[s.Name] = of
		}
		waits := current.Behind && of.units.Behind
		if current.Marginal != of.units.Marginal {
			of.carbon, waits = newTrack(), current.Behind
		}
		if current.Currency != of.units.Currency {
			of.price, waits = newTrack(), current.Behind
		}
		of.units = kube.Units{Marginal: current.Marginal, Currency: current.Currency, Behind: waits}
		if waits {
			continue
		}
		for track, current := range map[*past.Track]grid.Signal{&of.carbon: s.Carbon, &of.price: s.Price} {
			if current.Fresh(now, 0) {
				track.Note(now, current.Series.At(now))
			}
		}
	}
}

// during returns the carbon intensity and the price at a site in [start, end). Each is returned only if it was
// recorded for the whole interval and in the given units.
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
