package v1alpha1

import v1 "k8s.io/api/core/v1"

// What kubenergy-power and the owners of nodes write on nodes whose machines may sleep.
const (
	// LabelMaySleep opts a node in, with the value "true". Its owner sets it.
	LabelMaySleep = Prefix + "may-sleep"
	// LabelPowerState is what a machine does that is not simply awake. kubenergy-power sets it.
	LabelPowerState = Prefix + "power-state"
	// TaintAsleep keeps pods from nodes that are not awake.
	TaintAsleep = Prefix + "asleep"
	// AnnotationPower is what kubenergy-power remembers of a machine, as JSON.
	AnnotationPower = Prefix + "power"
)

// The values of [LabelPowerState].
const (
	PowerStopping = "stopping"
	PowerAsleep   = "asleep"
	PowerBooting  = "booting"
)

// ForSleep reports whether a node has a taint only because its machine is not awake: ours, and those of a node whose
// kubelet is silent.
func ForSleep(t *v1.Taint) bool {
	switch t.Key {
	case TaintAsleep, v1.TaintNodeNotReady, v1.TaintNodeUnreachable:
		return true
	}
	return false
}
