// Package instrument creates and registers the metrics of the controller's components. The metrics of the scheduler
// are defined in scheduler/instruments and use the registry of kube-scheduler.
package instrument

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Factory creates metrics and registers them with a registry.
type Factory struct{ promauto.Factory }

// With returns a Factory that registers metrics with registry. If registry is nil, the metrics are not exported.
func With(registry prometheus.Registerer) Factory { return Factory{promauto.With(registry)} }

// Counter returns a counter without labels.
func (f Factory) Counter(name, help string) prometheus.Counter {
	return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters returns a counter with labels.
func (f Factory) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Gauge returns a gauge without labels.
func (f Factory) Gauge(name, help string) prometheus.Gauge {
	return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Gauges returns a gauge with labels.
func (f Factory) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}
