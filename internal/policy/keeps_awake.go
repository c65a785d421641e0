package policy

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KeepsAwake reports whether a node cannot sleep while it runs the pod. Pods that come with the node let it: those of
// DaemonSets, and static pods, whose controller is the Node.
func KeepsAwake(pod *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner == nil || owner.Kind != "DaemonSet" && owner.Kind != "Node"
}
