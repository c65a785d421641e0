package lab

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// TestRunTimesExcludeLatencies verifies that the requested run times are reduced by the time by which the last pods
// ran longer than requested.
func TestRunTimesExcludeLatencies(t *testing.T) {
	const late, requested = 40 * time.Millisecond, 20 * time.Millisecond
	w := &watch{trials: map[string]map[int]*observed{"trial": {}}}
	if got := w.request(requested); got != requested {
		t.Errorf("before the first pod: %v", got)
	}
	for i := range 50 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "trial", Annotations: map[string]string{
			annotationJob: string('0' + rune(i%10)), v1alpha1.AnnotationLabRunSeconds: RunSeconds(requested),
		}}, Spec: corev1.PodSpec{NodeName: "n"}}
		w.trials["trial"] = map[int]*observed{}
		w.see(pod)
		for _, seen := range w.trials["trial"] {
			seen.bound = seen.bound.Add(-late - requested)
		}
		pod.Status.Phase = corev1.PodSucceeded
		w.see(pod)
		w.see(pod) // later events do not count
	}
	if got := w.request(time.Second); got < time.Second-late*5/4 || got > time.Second-late*9/10 {
		t.Errorf("after pods that ran %v longer: %v", late, got)
	}
	if got := w.request(late / 2); got != 0 {
		t.Errorf("for a run shorter than the latency: %v", got)
	}
}
