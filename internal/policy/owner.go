package policy

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scheduled returns the condition PodScheduled of a pod, or the zero value if the pod has none.
func Scheduled(pod *v1.Pod) v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == v1.PodScheduled {
			return pod.Status.Conditions[i]
		}
	}
	return v1.PodCondition{}
}

// OwnerOf returns the kind and name of the object that users associate with a pod, as far as they follow from the
// pod itself. This is its controller, or the pod if it has none. The Deployment of a ReplicaSet is derived from the
// name of the ReplicaSet, which ends with a hash. A static pod is its own owner, because its controller is the
// node.
func OwnerOf(pod *v1.Pod) (kind, name string) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind == "Node" {
		return "Pod", pod.Name
	}
	if hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; owner.Kind == "ReplicaSet" && hash != "" {
		if deployment, ok := strings.CutSuffix(owner.Name, "-"+hash); ok && deployment != "" {
			return "Deployment", deployment
		}
	}
	return owner.Kind, owner.Name
}
