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
			"Reviews requested from the API server, of tokens (token) and of permissions (access).", "kind", "result"),
		refusals: with.Counters("kubenergy_access_refused_total",
			"Rejected requests of people and programs, by reason.", "reason"),
		grace: with.Counter("kubenergy_access_grace_total", "Requests of agents that were accepted while the API "+
			"server was unavailable, because they had been authenticated recently."),
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
