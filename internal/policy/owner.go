package policy

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scheduled returns what the condition PodScheduled of a pod says; nothing if it has none.
func Scheduled(pod *v1.Pod) v1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == v1.PodScheduled {
			return pod.Status.Conditions[i]
		}
	}
	return v1.PodCondition{}
}

// OwnerOf returns what people know a pod by, as far as the pod itself says: its controller, or the pod itself where
// it has none. A ReplicaSet's name is its Deployment's and a hash. A static pod's controller is its node, by which
// no user knows it.
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
