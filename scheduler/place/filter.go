package place

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	fwk "k8s.io/kube-scheduler/framework"
)

var (
	filteredNodes = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "kubenergy_filtered_nodes_total",
		Help:           "Nodes refused for what a pod asked of its node's power or efficiency.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})

	shortlisted = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "kubenergy_shortlisted_cycles_total", Help: "Cycles that were narrowed to the nodes of least cost, and " +
			"of these those in vain: the pods were tried again on all nodes.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"outcome"})

	// kube-scheduler serves this registry at /metrics.
	registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(filteredNodes, shortlisted) })
)

// What shortlisted counts.
const (
	outcomeMade    = "narrowed"
	outcomeRetried = "retried"
)

// Filter refuses nodes that draw more than the pod allows, or are less efficient than it wants. It is not called for
// pods that say nothing of the kind. Nodes of unknown power pass: a pod must not be unschedulable for want of
// knowledge.
func (e *Energy) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, n fwk.NodeInfo) (status *fwk.Status) {
	data, err := state.Read(requestKey)
	if err != nil {
		return nil
	}
	defer func() {
		if e.rescue.from("Filter", recover()) {
			status = nil
		}
	}()
	r := data.(*request)
	if r.settings.MaxPower == 0 && r.settings.MinEfficiency == 0 { // the cycle is narrowed, and so not skipped
		return nil
	}
	capacity := resources(n.GetAllocatable())
	node, known := r.view.Node(n.Node(), capacity, capacity, 0)
	if !known {
		return nil
	}
	if why, ok := r.job.Admits(&node, r.settings.MaxPower, 0); !ok {
		filteredNodes.WithLabelValues("max-power-watts").Inc()
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	if why, ok := r.job.Admits(&node, 0, r.settings.MinEfficiency); !ok {
		filteredNodes.WithLabelValues("min-efficiency").Inc()
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	return nil
}
