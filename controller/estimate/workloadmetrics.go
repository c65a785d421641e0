package controller

import (
	"github.com/prometheus/client_golang/prometheus"
)

// instruments are the counters of the controller. Their series are those of namespaces, and go with them.
type instruments struct {
	finished, runtime, energy    *prometheus.CounterVec
	carbon, counterfactualCarbon *prometheus.CounterVec
	cost, counterfactualCost     *prometheus.GaugeVec // prices may be negative, so these may fall
	unaccounted                  *prometheus.CounterVec
	shadowDecisions, shadowSaved *prometheus.CounterVec
	shadowLost                   prometheus.Counter
	overdue                      *prometheus.CounterVec
}

const (
	labelNamespace = "namespace"
	labelSignal    = "signal" // the kind of carbon intensity: sums of different kinds mean nothing
)

func newInstruments(registry prometheus.Registerer) *instruments {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		registry.MustRegister(g)
		return g
	}
	m := &instruments{
		finished: counter("kubenergy_workload_finished_total", "Finished pods whose energy was estimated.",
			labelNamespace),
		runtime: counter("kubenergy_workload_runtime_seconds_total", "Time that finished pods ran.", labelNamespace),
		energy: counter("kubenergy_workload_energy_joules_total",
			"Energy that finished pods have used, estimated from requests and power profiles, PUE included.",
			labelNamespace),
		carbon: counter("kubenergy_workload_carbon_grams_total", "Emissions of finished pods, estimated.",
			labelNamespace, labelSignal),
		counterfactualCarbon: counter("kubenergy_workload_counterfactual_carbon_grams_total",
			"Emissions of the same pods if nothing had been held, estimated.", labelNamespace, labelSignal),
		cost: gauge("kubenergy_workload_cost",
			"Cost of the electricity of finished pods, estimated, since the controller started.", labelNamespace,
			"currency"),
		counterfactualCost: gauge("kubenergy_workload_counterfactual_cost",
			"Cost of the same pods if nothing had been held, estimated.", labelNamespace, "currency"),
		unaccounted: counter("kubenergy_workload_unaccounted_total",
			"Finished pods for which something is not known, by what.", "lacks"),
		shadowDecisions: counter("kubenergy_shadow_decisions_total",
			"Decisions that were not carried out, since the mode is shadow or advise.", labelNamespace, "rule",
			"outcome"),
		shadowSaved: counter("kubenergy_shadow_saved_carbon_grams_total",
			"Emissions that holding would have avoided, estimated.", labelNamespace, labelSignal),
		shadowLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubenergy_shadow_lost_total",
			Help: "New work that was not looked at, because too much came at once.",
		}),
		overdue: counter("kubenergy_overdue_releases_total",
			"Held Jobs past their deadline that no scheduler had released.", "result"),
	}
	registry.MustRegister(m.shadowLost)
	return m
}

// forget drops the series of a namespace that is gone.
func (m *instruments) forget(namespace string) {
	labels := prometheus.Labels{labelNamespace: namespace}
	for _, c := range []*prometheus.CounterVec{
		m.finished, m.runtime, m.energy, m.carbon, m.counterfactualCarbon, m.shadowDecisions, m.shadowSaved,
	} {
		c.DeletePartialMatch(labels)
	}
	m.cost.DeletePartialMatch(labels)
	m.counterfactualCost.DeletePartialMatch(labels)
}
