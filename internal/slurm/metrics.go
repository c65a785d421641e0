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
			Name: "kubenergy_slurm_up", Help: "1 if the last look at Slurm went well, by the version of slurmrestd.",
		}, []string{"version"}),
		fails: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_slurm_failures_total",
			Help: "Looks at Slurm that failed: away, slow, forbidden, version, refused, answer, rules, state, other.",
		}, []string{"reason"}),
		jobs: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubenergy_slurm_jobs", Help: "Pending jobs whose comment has kubenergy:, by what is done.",
		}, []string{"state"}),
		begins: promauto.With(r).NewCounter(prometheus.CounterOpts{
			Name: "kubenergy_slurm_begin_times_total", Help: "BeginTimes that were given to jobs.",
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
