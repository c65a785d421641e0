package estimate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/controller/instrument"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// workloadMetrics contains the totals by namespace. The series of a deleted namespace are removed.
type workloadMetrics struct {
	finished, runtime, energy, quality *prometheus.CounterVec
	carbon, counterfactualCarbon       *prometheus.CounterVec
	cost, counterfactualCost           *prometheus.GaugeVec // prices may be negative, so the totals may decrease
	unaccounted                        *prometheus.CounterVec
}

const (
	labelNamespace = "namespace"
	labelSignal    = "signal" // kind of carbon intensity; different kinds must not be added
)

func newWorkloadMetrics(registry prometheus.Registerer) workloadMetrics {
	with := instrument.With(registry)
	return workloadMetrics{
		finished: with.Counters("kubenergy_workload_finished_total", "Finished pods that were accounted for.",
			labelNamespace),
		runtime: with.Counters("kubenergy_workload_runtime_seconds_total", "Running time of finished pods.",
			labelNamespace),
		energy: with.Counters("kubenergy_workload_energy_joules_total",
			"Energy used by finished pods, including PUE.", labelNamespace),
		quality: with.Counters("kubenergy_workload_energy_quality_joules_total",
			"Energy used by finished pods by quality: derived from a "+
				"meter or estimated by a model.", labelNamespace, "quality"),
		carbon: with.Counters("kubenergy_workload_carbon_grams_total", "Emissions of finished pods.", labelNamespace,
			labelSignal),
		counterfactualCarbon: with.Counters("kubenergy_workload_counterfactual_carbon_grams_total",
			"Estimated emissions of the same pods without holding.", labelNamespace, labelSignal),
		cost: with.Gauges("kubenergy_workload_cost",
			"Cost of the electricity of finished pods since the controller started.", labelNamespace, "currency"),
		counterfactualCost: with.Gauges("kubenergy_workload_counterfactual_cost",
			"Estimated cost of the same pods without holding.", labelNamespace, "currency"),
		unaccounted: with.Counters("kubenergy_workload_unaccounted_total",
			"Finished pods that were not fully accounted for, by the missing data.", "lacks"),
	}
}

// add adds a finished pod with its running time, its usage, and its hypothetical usage without holding. The amounts
// exclude the PUE.
func (m *workloadMetrics) add(namespace string, ran time.Duration, pue float64, rates *ledger.Rates,
	used, unheld *ledger.Amount,
) {
	const gram, money = 1e6, 1e9 // units of the ledger per gram and per currency unit
	joules := pue * float64(used.Energy().Joules())
	estimated := pue * float64(used.Estimated.Joules())
	m.finished.WithLabelValues(namespace).Inc()
	m.runtime.WithLabelValues(namespace).Add(ran.Seconds())
	m.energy.WithLabelValues(namespace).Add(max(0, joules))
	m.quality.WithLabelValues(namespace, energy.Estimated.String()).Add(max(0, estimated))
	m.quality.WithLabelValues(namespace, energy.Derived.String()).Add(max(0, joules-estimated))
	if used.Uncharted > 0 || rates.Signal == "" {
		m.unaccounted.WithLabelValues(lacksGrid).Inc()
	} else {
		m.carbon.WithLabelValues(namespace, rates.Signal).Add(max(0, pue*float64(used.Carbon)/gram))
		m.counterfactualCarbon.WithLabelValues(namespace, rates.Signal).Add(max(0, pue*float64(unheld.Carbon)/gram))
	}
	if used.Unpriced == 0 && rates.Currency != "" {
		m.cost.WithLabelValues(namespace, rates.Currency).Add(pue * float64(used.Cost) / money)
		m.counterfactualCost.WithLabelValues(namespace, rates.Currency).Add(pue * float64(unheld.Cost) / money)
	}
}

// Forget removes the series of a deleted namespace.
func (w *Workloads) Forget(namespace string) {
	m, labels := &w.metrics, prometheus.Labels{labelNamespace: namespace}
	for _, c := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
		m.finished, m.runtime, m.energy, m.quality, m.carbon, m.counterfactualCarbon, m.cost, m.counterfactualCost,
	} {
		c.DeletePartialMatch(labels)
	}
}
