// Package instruments makes the metrics of what runs in the scheduler. They appear in the registry that kube-scheduler
// serves at /metrics once their package registers them: what a process does not use, it does not show.
package instruments

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// Set is the metrics of a package, which are made when the package is loaded.
type Set struct {
	all   []metrics.Registerable
	plain []func() // show a metric without labels before it is used
	once  sync.Once
}

// Counter adds a counter, by labels.
func (s *Set) Counter(name, help string, labels ...string) *metrics.CounterVec {
	c := metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	s.add(c, func() { c.WithLabelValues() }, labels)
	return c
}

// Gauge adds a gauge, by labels.
func (s *Set) Gauge(name, help string, labels ...string) *metrics.GaugeVec {
	g := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	s.add(g, func() { g.WithLabelValues() }, labels)
	return g
}

// Histogram adds a histogram, by labels.
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

// registerPanics shows the panics of the whole process once, whichever part's metrics come first.
var registerPanics = sync.OnceFunc(func() { legacyregistry.RawMustRegister(panics.Metrics()) })

// Register makes the metrics appear. It may be called more than once.
func (s *Set) Register() {
	s.once.Do(func() {
		legacyregistry.MustRegister(s.all...)
		registerPanics()
		for _, show := range s.plain {
			show()
		}
	})
}
