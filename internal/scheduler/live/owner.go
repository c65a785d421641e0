package live

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/policy"
)

// A CronJob names its Jobs after itself and the minute that they are due, counted from 1970.
const minMinuteDigits = 8

// OwnersOf returns the owners under which a pod's power may be known, the best first. A pod names its Job or
// ReplicaSet; what made that follows from how the controllers of Kubernetes name them.
func OwnersOf(pod *v1.Pod) []Owner {
	kind, name := policy.OwnerOf(pod)
	self := Owner{pod.Namespace, kind, name}
	switch kind {
	case "Job":
		if i := strings.LastIndexByte(name, '-'); i > 0 && len(name)-i > minMinuteDigits &&
			strings.Trim(name[i+1:], "0123456789") == "" {
			return []Owner{{pod.Namespace, "CronJob", name[:i]}, self}
		}
	case "Deployment":
		// It may be known by its ReplicaSet alone.
		if owner := metav1.GetControllerOfNoCopy(pod); owner.Kind != kind {
			return []Owner{self, {pod.Namespace, owner.Kind, owner.Name}}
		}
	}
	return []Owner{self}
}
