package zone

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// A History remembers what carbon intensities and prices were. Forecasts say only what comes, and what finished work
// has emitted depends on what was.
type History struct {
	misses *prometheus.SummaryVec

	mu    sync.Mutex
	sites map[string]*siteHistory
}

// siteHistory is what is remembered of a site.
type siteHistory struct {
	units         kube.Units // of the tracks
	carbon, price signal.Track
	forecast      foretold
}

// remembered is for how long: work that ran longer gets no emissions.
const remembered = 72 * time.Hour

func newTrack() signal.Track { return signal.Track{Span: remembered} }

// Signal returns the kind of the carbon intensities of all sites together, as metrics name it: sums of different kinds
// mean nothing.
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

// NewHistory returns a History that knows nothing; it shows how wrong forecasts were, unless registry is nil.
func NewHistory(registry prometheus.Registerer) *History {
	misses := promauto.With(registry).NewSummaryVec(prometheus.SummaryOpts{
		Name: "kubenergy_forecast_error_ratio",
		Help: "By how much forecasts of hourly carbon intensity were wrong, as a share of what it turned out to be.",
	}, []string{"zone", "horizon"})
	return &History{sites: map[string]*siteHistory{}, misses: misses}
}

// Run takes samples until ctx ends.
func (h *History) Run(ctx context.Context, view func() *kube.View) error {
	for again := true; again; again = kube.Pause(ctx, time.Minute) {
		daemon.Round(ctx, func() { h.Sample(view(), time.Now()) })
	}
	return nil
}

// Sample notes what holds now. What is recorded of sites that are gone is forgotten, and so is what was recorded in
// other units: one track never holds both. After units have changed, nothing is recorded until the signals follow.
func (h *History) Sample(v *kube.View, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.sites, func(name string, of *siteHistory) bool {
		gone := v.Site(name) == nil
		if gone {
			h.misses.DeletePartialMatch(prometheus.Labels{"zone": string(of.forecast.zone)})
		}
		return gone
	})
	for _, s := range v.Sites() {
		current, of := v.Units(s.Name), h.sites[s.Name]
		if of == nil {
			of = &siteHistory{units: kube.Units{Behind: true}, carbon: newTrack(), price: newTrack()}
			h.sites[s.Name] = of
		}
		waits := current.Behind && of.units.Behind
		if current.Marginal != of.units.Marginal {
			of.carbon, of.forecast.of, waits = newTrack(), nil, current.Behind
		}
		if current.Currency != of.units.Currency {
			of.price, waits = newTrack(), current.Behind
		}
		of.units = kube.Units{Marginal: current.Marginal, Currency: current.Currency, Behind: waits}
		if waits {
			continue
		}
		for track, current := range map[*signal.Track]grid.Signal{&of.carbon: s.Carbon, &of.price: s.Price} {
			if current.Fresh(now, 0) {
				track.Note(now, current.Series.At(now))
			}
		}
		if of.forecast.zone = s.Zone; s.Carbon.Fresh(now, 0) {
			of.forecast.look(s.Carbon.Series, &of.carbon, now, func(ahead string, miss float64) {
				h.misses.WithLabelValues(string(s.Zone), ahead).Observe(miss)
			})
		}
	}
}

// horizons are how far ahead of an hour a forecast of it is held against what it turned out to be, and their names.
var horizons = []struct {
	ahead time.Duration
	name  string
}{{time.Hour, "1h"}, {6 * time.Hour, "6h"}, {24 * time.Hour, "24h"}}

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
