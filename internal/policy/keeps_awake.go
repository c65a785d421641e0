package policy

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KeepsAwake reports whether a node must not sleep while it runs the pod. Pods that belong to the node itself do
// not prevent it from sleeping. These are the pods of DaemonSets and static pods, which are controlled by the Node.
func KeepsAwake(pod *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner == nil || owner.Kind != "DaemonSet" && owner.Kind != "Node"
}
