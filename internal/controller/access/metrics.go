package access

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/controller/instrument"
)

// metrics contains the metrics of a Gate. The number of series does not depend on the number of callers.
type metrics struct {
	reviews  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	grace    prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	with := instrument.With(registry)
	return &metrics{
		reviews: with.Counters("kubenergy_access_reviews_total",
			"Reviews asked of the API server: who a token belongs to (token), what its owner may do (access).", "kind",
			"result"),
		refusals: with.Counters("kubenergy_access_refused_total",
			"Requests of people and programs that were refused, by why.", "reason"),
		grace: with.Counter("kubenergy_access_grace_total", "Requests of agents that were let in while the API server "+
			"was away, because they had been known shortly before."),
	}
}

func (m *metrics) review(kind string, allowed bool) {
	result := "denied"
	if allowed {
		result = "allowed"
	}
	m.reviews.WithLabelValues(kind, result).Inc()
}

func (m *metrics) refused(reason string) { m.refusals.WithLabelValues(reason).Inc() }
