package live

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/policy"
)

// The name of a Job that a CronJob creates ends with the scheduled time in minutes since 1970.
const minMinuteDigits = 8

// OwnersOf returns the owners under which the power of the pod may have been recorded, most specific to the
// workload first. The owner of a Job or ReplicaSet is derived from its name, because the pod only references the
// latter.
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
		// The measurements may only contain its ReplicaSet.
		if owner := metav1.GetControllerOfNoCopy(pod); owner.Kind != kind {
			return []Owner{self, {pod.Namespace, owner.Kind, owner.Name}}
		}
	}
	return []Owner{self}
}
