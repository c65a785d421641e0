package v1alpha1

import v1 "k8s.io/api/core/v1"

// The values of [LabelPowerState].
const (
	PowerStopping = "stopping"
	PowerAsleep   = "asleep"
	PowerBooting  = "booting"
)

// ForSleep reports whether a node has a taint only because its machine is not awake: ours, those of a node whose
// kubelet is silent, and what cloud controllers and network plugins make of that.
func ForSleep(t *v1.Taint) bool {
	switch t.Key {
	case TaintAsleep, v1.TaintNodeNotReady, v1.TaintNodeUnreachable, v1.TaintNodeNetworkUnavailable,
		"node.cloudprovider.kubernetes.io/shutdown", "node.cilium.io/agent-not-ready":
		return true
	}
	return false
}
