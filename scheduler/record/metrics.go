package record

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	records = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "kubenergy_records_total", Help: "Number of records of decisions: sent to the central unit, refused by " +
			"it, or dropped because too many waited.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"outcome"})
	panics = metrics.NewCounter(&metrics.CounterOpts{
		Name: "kubenergy_record_panics_total",
		Help: "Panics while decisions were written or sent; the log has their stacks.", StabilityLevel: metrics.ALPHA,
	})

	// kube-scheduler serves this registry at /metrics.
	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(records, panics) })
)
