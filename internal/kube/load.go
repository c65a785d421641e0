package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Load contains the resources requested by the pods on a node.
type Load struct {
	Requested sched.Resources
	Jobs      int // number of pods that prevent the node from sleeping
}

// Add adds a pod unless it has completed.
func (l *Load) Add(p *v1.Pod) {
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return
	}
	l.Requested = l.Requested.Add(policy.PodRequest(p))
	if policy.KeepsAwake(p) {
		l.Jobs++
	}
}

// Node converts a node with this load, see [View.Node].
func (l *Load) Node(v *View, n *v1.Node) (sched.Node, bool) {
	capacity := Allocatable(n)
	return v.Node(n, capacity, capacity.Sub(l.Requested), l.Jobs)
}
