package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// PowerState returns the power state in the label of a node. A node with an unknown state is treated as asleep. It
// is woken up when it is needed, and considered awake once it is Ready.
func PowerState(n *v1.Node) sleep.State {
	switch state := sleep.State(n.Labels[v1alpha1.LabelPowerState]); state {
	case sleep.Stopping, sleep.Asleep, sleep.Booting:
		return state
	case "":
		return sleep.Awake
	}
	return sleep.Asleep
}
