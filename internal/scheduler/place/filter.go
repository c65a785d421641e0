package place

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/scheduler/instruments"
)

var (
	metrics = &instruments.Set{}

	filteredNodes = metrics.Counter("kubenergy_filtered_nodes_total",
		"Number of nodes rejected because of their power, efficiency or temperature.", "reason")
	shortlisted = metrics.Counter("kubenergy_shortlisted_cycles_total", "Number of scheduling cycles that were "+
		"narrowed to the cheapest nodes, and of retries on all nodes after narrowed ones.", "outcome")
)

// Values of the label outcome of shortlisted.
const (
	outcomeMade    = "narrowed"
	outcomeRetried = "retried"
)

// Filter rejects nodes that are too hot, that exceed the max power of the pod, or that are less efficient than the
// pod requires. It is skipped for pods without such requirements unless a node is too hot. Nodes with unknown power
// or temperature pass, so that missing data does not make a pod unschedulable.
func (e *Energy) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, n fwk.NodeInfo) (status *fwk.Status) {
	defer e.rescue.from("Filter", func() { status = nil })
	r := noted[request](state, requestKey)
	if r == nil {
		return nil
	}
	if why, hot := e.live.TooHot(n.Node().Name); hot {
		filteredNodes.WithLabelValues("max-temperature").Inc()
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	if r.settings.MaxPower == 0 && r.settings.MinEfficiency == 0 { // called only because the cycle was narrowed
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
