package budget

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// maxSeries bounds how many workloads with a budget of their own are shown, the fullest first.
const maxSeries = 1000

var ratioDesc = prometheus.NewDesc("kubenergy_budget_usage_ratio",
	"Share of a limit of an EnergyBudget that is used in its period; budget is Own where a workload has one for "+
		"itself, which workload names.",
	[]string{"namespace", "budget", "workload", "resource"}, nil)

// instruments are the metrics. Those of budgets that are gone go with them.
type instruments struct {
	exceeded, warned, suspended *prometheus.CounterVec

	mu    sync.Mutex
	shown []series
}

type series struct {
	namespace, budget, workload, resource string
	ratio                                 float64
}

func newInstruments() *instruments {
	return &instruments{
		exceeded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_budget_exceeded_total",
			Help: "Actions because a budget was used up; owner_kind is that of a workload with a budget for itself.",
		}, []string{"namespace", "owner_kind", "action"}),
		warned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_budget_warnings_total", Help: "Actions because less than all of a budget was used.",
		}, []string{"namespace", "action"}),
		suspended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_budget_suspended_jobs_total",
			Help: "Jobs that were suspended because a budget was used up.",
		}, []string{"namespace"}),
	}
}

func (m *instruments) took(namespace, ownerKind string, do v1alpha1.BudgetDeed, at int32) {
	if at < whole {
		m.warned.WithLabelValues(namespace, string(do)).Inc()
		return
	}
	m.exceeded.WithLabelValues(namespace, ownerKind, string(do)).Inc()
}

// show replaces what is shown of how much is used.
func (m *instruments) show(shared []*budgetCase, own []*allowance) {
	var all []series
	for _, c := range shared {
		if c.use == nil {
			continue
		}
		for _, r := range c.use.ratios(&c.budget.Spec.Limits) {
			all = append(all, series{c.budget.Namespace, c.budget.Name, "", r.resource, r.ratio})
		}
	}
	for _, a := range fullest(own, maxSeries) {
		for _, r := range a.use.ratios(&a.limits) {
			all = append(all, series{a.object.GetNamespace(), a.budget, a.workload(), r.resource, r.ratio})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shown = all
}

// Describe implements [prometheus.Collector].
func (m *instruments) Describe(to chan<- *prometheus.Desc) {
	to <- ratioDesc
	for _, c := range []prometheus.Collector{m.exceeded, m.warned, m.suspended} {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (m *instruments) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	shown := m.shown
	m.mu.Unlock()
	for _, s := range shown {
		to <- prometheus.MustNewConstMetric(ratioDesc, prometheus.GaugeValue, s.ratio, s.namespace, s.budget,
			s.workload, s.resource)
	}
	for _, c := range []prometheus.Collector{m.exceeded, m.warned, m.suspended} {
		c.Collect(to)
	}
}
