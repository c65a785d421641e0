package access

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics have a fixed number of series, for any number of callers.
type metrics struct {
	reviews  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	grace    prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	with := promauto.With(registry)
	return &metrics{
		reviews: with.NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_access_reviews_total",
			Help: "Reviews asked of the API server: who a token belongs to (token), what its owner may do (access).",
		}, []string{"kind", "result"}),
		refusals: with.NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_access_refused_total", Help: "Requests of people and programs that were refused, by why.",
		}, []string{"reason"}),
		grace: with.NewCounter(prometheus.CounterOpts{
			Name: "kubenergy_access_grace_total",
			Help: "Requests of agents that were let in while the API server was away, because they had been known " +
				"shortly before.",
		}),
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
