package live

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A CronJob names its Jobs after itself and the minute that they are due, counted from 1970.
const leastMinuteDigits = 8

// OwnersOf returns by whom a pod's power may be known, the best first. A pod names its Job or ReplicaSet; what made that
// follows from how the controllers of Kubernetes name them.
func OwnersOf(pod *v1.Pod) []Owner {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return []Owner{{pod.Namespace, "Pod", pod.Name}}
	}
	self := Owner{pod.Namespace, owner.Kind, owner.Name}
	switch owner.Kind {
	case "Job":
		if i := strings.LastIndexByte(owner.Name, '-'); i > 0 && isNumber(owner.Name[i+1:]) {
			return []Owner{{pod.Namespace, "CronJob", owner.Name[:i]}, self}
		}
	case "ReplicaSet":
		if hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; hash != "" {
			if name, ok := strings.CutSuffix(owner.Name, "-"+hash); ok && name != "" {
				return []Owner{{pod.Namespace, "Deployment", name}, self}
			}
		}
	}
	return []Owner{self}
}

func isNumber(text string) bool {
	return len(text) >= leastMinuteDigits && strings.Trim(text, "0123456789") == ""
}
