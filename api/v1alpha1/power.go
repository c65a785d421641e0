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

// asleep are the taints of a node that its machine gives it by not being awake: ours, those of a node whose kubelet is
// silent, and what cloud controllers and network plugins make of that.
var asleep = []string{
	TaintAsleep, v1.TaintNodeNotReady, v1.TaintNodeUnreachable, v1.TaintNodeNetworkUnavailable,
	"node.cloudprovider.kubernetes.io/shutdown", "node.cilium.io/agent-not-ready",
}

// WithoutSleep returns the taints of a node but those that it has only because its machine is not awake.
func WithoutSleep(taints []v1.Taint) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t v1.Taint) bool { return slices.Contains(asleep, t.Key) })
}
