package batch

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// What comes of a question.
const (
	whole  = "whole"
	cut    = "cut"
	late   = "late"
	failed = "failed"
)

// What comes of a pod that a plan has a node for.
const (
	Followed  = "followed"  // it is on the planned node
	Next      = "next"      // it is on one of the next options
	Elsewhere = "elsewhere" // it is on another node: others had a say in its scores, or nothing of the plan was left
	Retried   = "retried"   // none of the nodes passed all filters: it has an ordinary cycle
)

var (
	plans = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "kubenergy_batch_plans_total",
		Help:           "Plans over the pods that wait, by scheduler profile and by what came of them.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile", "result"})
	planSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "kubenergy_batch_plan_seconds", Help: "Time that a plan took to make.",
		Buckets: metrics.ExponentialBuckets(0.001, 2, 13), StabilityLevel: metrics.ALPHA,
	}, []string{"profile"})
	plannedPods = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "kubenergy_batch_planned_pods_total",
		Help:           "Pods that a plan had a node for; one that is in two plans counts twice.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile"})
	placedPods = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "kubenergy_batch_pods_total",
		Help:           "Pods whose turn came while a plan had a node for them, by where they went.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile", "outcome"})
	gap = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "kubenergy_batch_gap_ratio",
		Help: "How far the last plan may be from the best one, as a share of the bound; absent where no " +
			"bound is known.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"profile"})

	// kube-scheduler serves this registry at /metrics.
	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(plans, planSeconds, plannedPods, placedPods,
			gap)
	})
)

// profileMetrics are those of one profile of kube-scheduler.
type profileMetrics struct{ profile string }

func metricsOf(profile string) *profileMetrics {
	registerMetrics()
	return &profileMetrics{profile}
}

func (m *profileMetrics) plan(outcome string, took time.Duration) {
	plans.WithLabelValues(m.profile, outcome).Inc()
	planSeconds.WithLabelValues(m.profile).Observe(took.Seconds())
}

func (m *profileMetrics) found(s *solution) {
	plannedPods.WithLabelValues(m.profile).Add(float64(s.placed))
	if s.hasGap {
		gap.WithLabelValues(m.profile).Set(s.gap)
	} else {
		gap.Delete(map[string]string{"profile": m.profile})
	}
}

// Count counts a pod that the plan had a node for, by where it went.
func (p *Planner) Count(outcome string) { placedPods.WithLabelValues(p.metrics.profile, outcome).Inc() }
