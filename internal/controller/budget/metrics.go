package budget

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/instrument"
)

// maxSeries limits the number of workloads in the usage metric. Workloads with the highest usage take precedence.
const maxSeries = 1000

var ratioDesc = prometheus.NewDesc("kubenergy_budget_usage_ratio",
	"Used fraction of a limit of an EnergyBudget in its period; budget is Own for the budget of a single "+
		"workload, which is identified by workload.", []string{"namespace", "budget", "workload", "resource"}, nil)

// instruments contains the metrics. Series of deleted budgets are removed.
type instruments struct {
	exceeded, warned, suspended *prometheus.CounterVec
	shown                       atomic.Pointer[[]prometheus.Metric]
}

func newInstruments(registry prometheus.Registerer) (*instruments, error) {
	with := instrument.With(registry)
	m := &instruments{
		exceeded: with.Counters("kubenergy_budget_exceeded_total",
			"Actions carried out because a budget was exhausted; owner_kind is set for budgets of workloads.",
			"namespace", "owner_kind", "action"),
		warned: with.Counters("kubenergy_budget_warnings_total", "Actions carried out below 100 % of a budget.",
			"namespace", "action"),
		suspended: with.Counters("kubenergy_budget_suspended_jobs_total",
			"Jobs that were suspended because a budget was exhausted.", "namespace"),
	}
	return m, registry.Register(m)
}

func (m *instruments) took(namespace, ownerKind string, do v1alpha1.BudgetDeed, at int32) {
	if at < whole {
		m.warned.WithLabelValues(namespace, string(do)).Inc()
		return
	}
	m.exceeded.WithLabelValues(namespace, ownerKind, string(do)).Inc()
}

// show replaces the usage metrics.
func (m *instruments) show(shared []*budgetCase, own []*allowance) {
	var all []*account
	for _, c := range shared {
		if c.use != nil {
			all = append(all, &c.account)
		}
	}
	for _, a := range fullest(own, maxSeries) {
		all = append(all, &a.account)
	}
	var shown []prometheus.Metric
	for _, a := range all {
		for _, r := range a.use.ratios(a.limits) {
			shown = append(shown, prometheus.MustNewConstMetric(ratioDesc, prometheus.GaugeValue, r.share(),
				a.object.GetNamespace(), a.name, a.workload(), r.resource))
		}
	}
	m.shown.Store(&shown)
}

// Describe implements [prometheus.Collector].
func (*instruments) Describe(to chan<- *prometheus.Desc) { to <- ratioDesc }

// Collect implements [prometheus.Collector].
func (m *instruments) Collect(to chan<- prometheus.Metric) {
	if shown := m.shown.Load(); shown != nil {
		for _, s := range *shown {
			to <- s
		}
	}
}
