// Package instruments creates the metrics of the scheduler's components. The metrics appear in the registry that
// kube-scheduler serves at /metrics once their package registers them, so a process does not export metrics of
// unused components.
package instruments

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// Set contains the metrics of a package. They are created when the package is initialized.
type Set struct {
	all   []metrics.Registerable
	plain []func() // initialize metrics without labels, so that they are exported before their first use
	once  sync.Once
}

// Counter adds a counter with the given labels.
func (s *Set) Counter(name, help string, labels ...string) *metrics.CounterVec {
	c := metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	s.add(c, func() { c.WithLabelValues() }, labels)
	return c
}

// Gauge adds a gauge with the given labels.
func (s *Set) Gauge(name, help string, labels ...string) *metrics.GaugeVec {
	g := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	s.add(g, func() { g.WithLabelValues() }, labels)
	return g
}

// Histogram adds a histogram with the given labels.
func (s *Set) Histogram(name, help string, buckets []float64, labels ...string) *metrics.HistogramVec {
	h := metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA,
	}, labels)
	s.add(h, func() { h.WithLabelValues() }, labels)
	return h
}

func (s *Set) add(m metrics.Registerable, show func(), labels []string) {
	s.all = append(s.all, m)
	if len(labels) == 0 {
		s.plain = append(s.plain, show)
	}
}

// registerPanics registers the metrics of panics in the whole process once.
var registerPanics = sync.OnceFunc(func() { legacyregistry.RawMustRegister(panics.Metrics()) })

// Register registers all metrics of the set. It may be called more than once.
func (s *Set) Register() {
	s.once.Do(func() {
		legacyregistry.MustRegister(s.all...)
		registerPanics()
		for _, show := range s.plain {
			show()
		}
	})
}
