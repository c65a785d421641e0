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

// WithoutSleep returns the taints of a node but those that it has only because its machine is not awake: ours, those of
// a node whose kubelet is silent, and what cloud controllers and network plugins make of that.
func WithoutSleep(taints []v1.Taint) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t v1.Taint) bool {
		switch t.Key {
		case TaintAsleep, v1.TaintNodeNotReady, v1.TaintNodeUnreachable, v1.TaintNodeNetworkUnavailable,
			"node.cloudprovider.kubernetes.io/shutdown", "node.cilium.io/agent-not-ready":
			return true
		}
		return false
	})
}
