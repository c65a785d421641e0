package cmdutil

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Lateness is how long after its latest start a Job may still be waiting for its turn.
const Lateness = time.Minute

// HeldMarks is what the hold loop wrote on a Job that it holds.
type HeldMarks struct {
	Until, Latest *time.Time
	Reason        string
}

// ReadWritten returns what the annotations of a Job say of its hold. A time that is absent or not in RFC 3339 is nil.
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

// HeldMessage is what the hold loop wrote on a pod that waits for a node; "": nothing. In other modes than enforce it
// is what is left of a hold.
func HeldMessage(pod *v1.Pod) string {
	c := policy.Scheduled(pod)
	if pod.Spec.NodeName != "" || len(pod.Spec.SchedulingGates) > 0 || c.Reason != v1.PodReasonSchedulingGated {
		return ""
	}
	return dashboard.WithoutGrams(strings.TrimSuffix(c.Message, "."))
}
