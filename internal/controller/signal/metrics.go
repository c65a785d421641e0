package signal

import (
	"slices"
	"sync"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/controller/instrument"
)

// Metrics collects the metrics of all keepers. It must be registered once. The series of a zone are removed with
// its keeper.
type Metrics struct {
	clock    func() time.Time
	requests *prom.CounterVec
	rejected *prom.CounterVec
	misses   *prom.SummaryVec

	mu      sync.Mutex
	keepers []*Keeper // in order of creation
}

var (
	descAge = prom.NewDesc("kubenergy_signal_age_seconds",
		"Age of the current signal in seconds, by the timestamp of its source; 0 for signals that do not age.",
		[]string{"zone", "quantity"}, nil)
	descCarbon = prom.NewDesc("kubenergy_grid_carbon_intensity_grams_per_kilowatthour",
		"Current carbon intensity of electricity in gCO2e per kWh.", []string{"zone", "signal", "quality"}, nil)
	descPrice = prom.NewDesc("kubenergy_electricity_price_per_kilowatthour",
		"Current price of electricity per kWh in the currency of the zone.", []string{"zone", "currency"}, nil)
)

// NewMetrics returns metrics that use the given clock to compute ages.
func NewMetrics(clock func() time.Time) *Metrics {
	with := instrument.With(nil) // Collect includes the counters
	return &Metrics{
		clock: clock,
		misses: prom.NewSummaryVec(prom.SummaryOpts{
			Name: "kubenergy_forecast_error_ratio",
			Help: "Relative error of forecasts of hourly carbon intensity.",
		}, []string{"zone", "horizon"}),
		requests: with.Counters("kubenergy_signal_requests_total",
			"Number of requests to signal sources, including retries, by outcome: ok or a reason.",
			"source", "outcome"),
		rejected: with.Counters("kubenergy_signal_rejected_total",
			"Number of rejected polls of signal sources, by reason.", "zone", "quantity", "source", "reason"),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prom.Desc) {
	m.requests.Describe(ch)
	m.rejected.Describe(ch)
	m.misses.Describe(ch)
	ch <- descAge
	ch <- descCarbon
	ch <- descPrice
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prom.Metric) {
	m.requests.Collect(ch)
	m.rejected.Collect(ch)
	m.misses.Collect(ch)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	// Two GridZones may have the same zone. As a series must be unique, only the first keeper is collected.
	seen := make(map[string]bool)
	for _, k := range m.keepers {
		id := string(k.terms.zone) + "/" + string(k.terms.quantity) + "/" + k.terms.currency + Kind(k.terms.marginal)
		s, _ := k.Look(now)
		if s == nil || seen[id] {
			continue
		}
		var age time.Duration
		if s.AsOf != nil {
			age = now.Sub(s.AsOf.Time)
		}
		seen[id] = true
		zone := string(k.terms.zone)
		if !seen[zone+"/"+string(k.terms.quantity)] {
			seen[zone+"/"+string(k.terms.quantity)] = true
			ch <- prom.MustNewConstMetric(descAge, prom.GaugeValue, age.Seconds(), zone, string(k.terms.quantity))
		}
		if k.terms.quantity == carbon {
			ch <- prom.MustNewConstMetric(descCarbon, prom.GaugeValue, s.Now, zone, Kind(k.terms.marginal), s.Quality)
		} else {
			ch <- prom.MustNewConstMetric(descPrice, prom.GaugeValue, s.Now, zone, k.terms.currency)
		}
	}
}

// add collects the metrics of a keeper until it is removed.
func (m *Metrics) add(k *Keeper) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keepers = append(m.keepers, k)
}

// remove removes a keeper, and the counters of its sources unless another keeper of the zone has a source with the
// same name.
func (m *Metrics) remove(k *Keeper) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keepers = slices.DeleteFunc(m.keepers, func(other *Keeper) bool { return other == k })
	kept := make(map[string]bool)
	left := false
	for _, other := range m.keepers {
		left = left || other.terms.zone == k.terms.zone
		if other.terms.zone == k.terms.zone && other.terms.quantity == k.terms.quantity {
			for _, l := range other.links {
				kept[l.name] = true
			}
		}
	}
	if !left {
		m.misses.DeletePartialMatch(prom.Labels{"zone": string(k.terms.zone)})
	}
	for _, l := range k.links {
		if !kept[l.name] {
			m.rejected.DeletePartialMatch(prom.Labels{
				"zone": string(k.terms.zone), "quantity": string(k.terms.quantity), "source": l.name,
			})
		}
	}
}
