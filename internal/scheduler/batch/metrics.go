package batch

import (
	component "k8s.io/component-base/metrics"

	"github.com/kubenergy/kubenergy/internal/scheduler/instruments"
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
	metrics = &instruments.Set{}

	plans = metrics.Counter("kubenergy_batch_plans_total",
		"Plans over the pods that wait, by scheduler profile and by what came of them.", "profile", "result")
	planSeconds = metrics.Histogram("kubenergy_batch_plan_seconds", "Time that a plan took to make.",
		component.ExponentialBuckets(0.001, 2, 13), "profile")
	plannedPods = metrics.Counter("kubenergy_batch_planned_pods_total",
		"Pods that a plan had a node for; one that is in two plans counts twice.", "profile")
	placedPods = metrics.Counter("kubenergy_batch_pods_total",
		"Pods whose turn came while a plan had a node for them, by where they went.", "profile", "outcome")
	gap = metrics.Gauge("kubenergy_batch_gap_ratio", "How far the last plan may be from the best one, as a share of "+
		"the bound; absent where no bound is known.", "profile")
)

// found publishes what a plan found.
func (s *solution) found(profile string) {
	plannedPods.WithLabelValues(profile).Add(float64(s.placed))
	if s.hasGap {
		gap.WithLabelValues(profile).Set(s.gap)
	} else {
		gap.Delete(map[string]string{"profile": profile})
	}
}

// Count counts a pod that the plan had a node for, by where it went.
func (p *Planner) Count(outcome string) { placedPods.WithLabelValues(p.c.Profile, outcome).Inc() }
