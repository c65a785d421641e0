package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Load is what the pods on a node request of it.
type Load struct {
	Requested sched.Resources
	Jobs      int // pods but those that come with the node, which let it sleep
}

// Add adds a pod, unless it has ended.
func (l *Load) Add(p *v1.Pod) {
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return
	}
	l.Requested = l.Requested.Add(policy.PodRequest(p))
	if policy.KeepsAwake(p) {
		l.Jobs++
	}
}

// Node returns a node with this load, as [View.Node] does.
func (l *Load) Node(v *View, n *v1.Node) (sched.Node, bool) {
	capacity := Allocatable(n)
	return v.Node(n, capacity, capacity.Sub(l.Requested), l.Jobs)
}
