package v1alpha1

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Possible values of [LabelPowerState].
const (
	PowerStopping = "stopping"
	PowerAsleep   = "asleep"
	PowerBooting  = "booting"
)

// asleep lists the keys of taints that a node has because its machine is not awake: the taint of kubenergy-power,
// the taints of unreachable and unready nodes, and related taints of cloud controllers and network plugins.
var asleep = []string{
	TaintAsleep, v1.TaintNodeNotReady, v1.TaintNodeUnreachable, v1.TaintNodeNetworkUnavailable,
	"node.cloudprovider.kubernetes.io/shutdown", "node.cilium.io/agent-not-ready",
}

// WithoutSleep returns the taints of a node without the taints that are present only because its machine is not
// awake.
func WithoutSleep(taints []v1.Taint) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t v1.Taint) bool { return slices.Contains(asleep, t.Key) })
}
