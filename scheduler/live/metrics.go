package live

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Values of the label path of the metrics.
const (
	pathNodes     = "nodes"
	pathWorkloads = "workloads"
)

var (
	asked = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "kubenergy_live_requests_total",
		Help:           "Requests for live watts to the central unit, by what came of them.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"path", "result"})
	nodesKnown = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kubenergy_live_nodes",
		Help:           "Nodes in the last answer with live watts: fresh ones, and those that were left out, by why.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"state"})
	oldest = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "kubenergy_live_age_seconds",
		Help: "Age of the youngest reading of the last answer when it was last looked at; -1 if there is " +
			"none.",
		StabilityLevel: metrics.ALPHA,
	})
	reservedNow = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "kubenergy_live_provisional_watts",
		Help:           "Watts of pods that were bound and that no reading tells of yet.",
		StabilityLevel: metrics.ALPHA,
	})
	panics = metrics.NewCounter(&metrics.CounterOpts{
		Name: "kubenergy_live_panics_total", Help: "Panics while live watts were asked for; the log has their stacks.",
		StabilityLevel: metrics.ALPHA,
	})

	// kube-scheduler serves this registry at /metrics.
	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(asked, nodesKnown, oldest, reservedNow,
			panics)
	})
)
