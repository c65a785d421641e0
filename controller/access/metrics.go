package access

import "github.com/prometheus/client_golang/prometheus"

// metrics have a fixed number of series, for any number of callers.
type metrics struct {
	reviews  *prometheus.CounterVec
	refusals *prometheus.CounterVec
	grace    prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_access_reviews_total",
			Help: "Questions to the API server about who somebody is (token) and what they may do (access).",
		}, []string{"kind", "result"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_access_refused_total", Help: "Requests of people and programs that were refused, by why.",
		}, []string{"reason"}),
		grace: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubenergy_access_grace_total",
			Help: "Requests of agents that were let in while the API server was away, because they had been known " +
				"shortly before.",
		}),
	}
	if registry != nil {
		registry.MustRegister(m.reviews, m.refusals, m.grace)
	}
	return m
}

func (m *metrics) review(kind, result string) { m.reviews.WithLabelValues(kind, result).Inc() }

func (m *metrics) refused(reason string) { m.refusals.WithLabelValues(reason).Inc() }
