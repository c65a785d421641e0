package estimate

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/controller/instrument"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// metrics contains the metrics of an estimator.
type metrics struct {
	nodes           *prometheus.GaugeVec // by source of their energy
	samples, queued prometheus.Gauge
	batches, joules *prometheus.CounterVec // by outcome
	failures        prometheus.Counter
}

// Outcomes of an estimate.
const (
	booked  = "booked"
	dropped = "dropped"
)

var rootNames = [sources]string{"wall", "model", "unknown", "default"}

func newMetrics(registry prometheus.Registerer) *metrics {
	with := instrument.With(registry)
	m := &metrics{
		nodes: with.Gauges("kubenergy_agentless_nodes", "Nodes without an agent, by the source of their energy: wall, "+
			"model, default if their hardware is unknown, or unknown.", "by"),
		samples: with.Gauge("kubenergy_agentless_usage_samples",
			"Nodes and pods with CPU usage from metrics-server; requests are used for other pods."),
		queued:  with.Gauge("kubenergy_agentless_waiting_nodes", "Nodes with estimates that are not recorded yet."),
		batches: with.Counters("kubenergy_agentless_batches_total", "Estimates by outcome.", "outcome"),
		joules:  with.Counters("kubenergy_agentless_energy_joules_total", "Energy of estimates by outcome.", "outcome"),
		failures: with.Counter("kubenergy_agentless_booking_failures_total",
			"Failed attempts to record an estimate, which are retried."),
	}
	for _, outcome := range []string{booked, dropped} {
		m.batches.WithLabelValues(outcome)
		m.joules.WithLabelValues(outcome)
	}
	m.sources([sources]int{})
	return m
}

func (m *metrics) add(outcome string, b *batch.Batch) {
	m.batches.WithLabelValues(outcome).Add(float64(b.Last - b.First + 1))
	m.joules.WithLabelValues(outcome).Add(max(0, float64(b.Measured.Joules())))
}

func (m *metrics) sources(counts [sources]int) {
	for i, name := range rootNames {
		m.nodes.WithLabelValues(name).Set(float64(counts[i]))
	}
}
