package cmdutil

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Lateness is the tolerated delay of a Job after its latest start.
const Lateness = time.Minute

// HeldMarks contains the annotations that the hold loop sets on a held Job.
type HeldMarks struct {
	Until, Latest *time.Time
	Reason        string
}

// ReadWritten parses the annotations of a held Job. A time that is missing or not in RFC 3339 is nil.
func ReadWritten(annotations map[string]string) (w HeldMarks) {
	in := func(key string) *time.Time {
		t, err := time.Parse(time.RFC3339, annotations[key])
		if err != nil {
			return nil
		}
		return &t
	}
	return HeldMarks{
		in(v1alpha1.AnnotationHeldUntil), in(v1alpha1.AnnotationLatestStart),
		annotations[v1alpha1.AnnotationHeldReason],
	}
}

// HeldMessage returns the message that the hold loop set on a pending pod, or "" if the pod is not held. In modes
// other than enforce it may be left over from a previous hold.
func HeldMessage(pod *v1.Pod) string {
	c := policy.Scheduled(pod)
	if pod.Spec.NodeName != "" || len(pod.Spec.SchedulingGates) > 0 || c.Reason != v1.PodReasonSchedulingGated {
		return ""
	}
	return dashboard.WithoutGrams(strings.TrimSuffix(c.Message, "."))
}
