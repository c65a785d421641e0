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

// A History records past carbon intensities and prices, which forecasts do not contain, to compute the emissions of
// finished work. It is safe for concurrent use.
type History struct {
	misses *prometheus.SummaryVec

	mu    sync.Mutex
	sites map[string]*siteHistory
}

// siteHistory is the history of a site.
type siteHistory struct {
	units         kube.Units // units of the tracks
	carbon, price signal.Track
	forecast      foretold
}

// remembered is the length of the history. Emissions of work that ran longer are unknown.
const remembered = 72 * time.Hour

func newTrack() signal.Track { return signal.Track{Span: remembered} }

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

// NewHistory returns an empty History. It exports the forecast error as a metric unless registry is nil.
func NewHistory(registry prometheus.Registerer) *History {
	misses := promauto.With(registry).NewSummaryVec(prometheus.SummaryOpts{
		Name: "kubenergy_forecast_error_ratio",
		Help: "Relative error of forecasts of hourly carbon intensity.",
	}, []string{"zone", "horizon"})
	return &History{sites: map[string]*siteHistory{}, misses: misses}
}

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

// horizons are the lead times of the forecasts that are compared with the recorded values, with their names in
// metrics.
var horizons = []struct {
	ahead time.Duration
	name  string
}{{time.Hour, "1h"}, {6 * time.Hour, "6h"}, {24 * time.Hour, "24h"}}

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
