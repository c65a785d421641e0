package v1alpha1

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// The values of [LabelPowerState].
const (
	PowerStopping = "stopping"
	PowerAsleep   = "asleep"
	PowerBooting  = "booting"
)

// WithoutSleep returns the taints of a node but those that it has only because its machine is not awake: ours, and
// those of a node whose kubelet is silent.
func WithoutSleep(taints []v1.Taint) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t v1.Taint) bool {
		return t.Key == TaintAsleep || t.Key == v1.TaintNodeNotReady || t.Key == v1.TaintNodeUnreachable
	})
}
