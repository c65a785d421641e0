package slurm

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	up     *prometheus.GaugeVec
	fails  *prometheus.CounterVec
	jobs   *prometheus.GaugeVec
	begins prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	return &metrics{
		up: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubenergy_slurm_up", Help: "1 if the last pass succeeded, otherwise 0, by version of slurmrestd.",
		}, []string{"version"}),
		fails: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_slurm_failures_total",
			Help: "Failed passes by reason: away, slow, forbidden, version, refused, answer, rules, state, other.",
		}, []string{"reason"}),
		jobs: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubenergy_slurm_jobs", Help: "Number of pending jobs with kubenergy: in their comment, by state.",
		}, []string{"state"}),
		begins: promauto.With(r).NewCounter(prometheus.CounterOpts{
			Name: "kubenergy_slurm_begin_times_total", Help: "Number of BeginTimes that were set.",
		}),
	}
}

func (m *metrics) looked(err error, version string) {
	m.up.Reset()
	if err == nil {
		m.up.WithLabelValues(version).Set(1)
		return
	}
	m.up.WithLabelValues(version).Set(0)
	reason := "other"
	if t, ok := errors.AsType[*Trouble](err); ok {
		reason = t.Kind
	}
	m.fails.WithLabelValues(reason).Inc()
}

func (m *metrics) show(states map[string]int) {
	m.jobs.Reset()
	for state, n := range states {
		m.jobs.WithLabelValues(state).Set(float64(n))
	}
}
