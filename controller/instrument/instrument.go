// Package instrument makes and registers the metrics of the controller's parts.
package instrument

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Factory registers what it makes.
type Factory struct{ promauto.Factory }

// With returns the factory of a registry; nil: what it makes is shown nowhere.
func With(registry prometheus.Registerer) Factory { return Factory{promauto.With(registry)} }

// Counter counts one thing.
func (f Factory) Counter(name, help string) prometheus.Counter {
	return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters count things that labels tell apart.
func (f Factory) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Gauge shows one value.
func (f Factory) Gauge(name, help string) prometheus.Gauge {
	return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Gauges show values that labels tell apart.
func (f Factory) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}
