package batch

import (
	component "k8s.io/component-base/metrics"

	"github.com/kubenergy/kubenergy/internal/scheduler/instruments"
)

// Values of the label result of plans.
const (
	whole  = "whole"
	cut    = "cut"
	late   = "late"
	failed = "failed"
)

// Values of the label outcome of placedPods.
const (
	Followed = "followed" // placed on the planned node
	Next     = "next"     // placed on one of the next options
	// Elsewhere means placed on another node, because other plugins affected the scores or no planned node was
	// feasible.
	Elsewhere = "elsewhere"
	Retried   = "retried" // no planned node passed all filters, so the pod is retried in an ordinary cycle
)

var (
	metrics = &instruments.Set{}

	plans = metrics.Counter("kubenergy_batch_plans_total",
		"Number of joint plans for waiting pods, by scheduler profile and result.", "profile", "result")
	planSeconds = metrics.Histogram("kubenergy_batch_plan_seconds", "Time to compute a plan.",
		component.ExponentialBuckets(0.001, 2, 13), "profile")
	plannedPods = metrics.Counter("kubenergy_batch_planned_pods_total",
		"Number of pods with a planned node; a pod in two plans is counted twice.", "profile")
	placedPods = metrics.Counter("kubenergy_batch_pods_total",
		"Number of scheduling cycles of pods with a planned node, by outcome.", "profile", "outcome")
	gap = metrics.Gauge("kubenergy_batch_gap_ratio", "Maximum distance of the last plan from the optimum relative to "+
		"the bound; absent if no bound is known.", "profile")
)

// found updates the metrics with the solution.
func (s *solution) found(profile string) {
	plannedPods.WithLabelValues(profile).Add(float64(s.placed))
	if s.hasGap {
		gap.WithLabelValues(profile).Set(s.gap)
	} else {
		gap.Delete(map[string]string{"profile": profile})
	}
}

// Count counts a planned pod by the outcome of its cycle.
func (p *Planner) Count(outcome string) { placedPods.WithLabelValues(p.c.Profile, outcome).Inc() }
