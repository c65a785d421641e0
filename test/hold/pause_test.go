package hold

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestPauses verifies on a real control plane, with the permissions and policies of the release, that a running Job is
// paused in a dirty minute and resumed after it, that the next leader resumes a Job if the one that paused it is
// killed, and that a Job that has not opted in continues to run.
func TestPauses(t *testing.T) {
	if !long {
		t.Skip("waits for minutes: run make hold")
	}
	namespace := shared.Namespace(t, "pauses", nil)
	first := shared.scheduler(t, "pauses-1", shared.minutes(t))
	for _, name := range []string{"interruptible", "steady"} {
		shared.createJob(t, namespace, newJob(name, "10m", func(j *batchv1.Job) {
			j.Annotations[v1alpha1.AnnotationStrategy] = "carbon+ecovisor"
			if name == "interruptible" {
				j.Labels = map[string]string{v1alpha1.LabelInterruptible: "true"}
			}
			j.Spec.Template.Annotations[v1alpha1.AnnotationLabRunSeconds] = "600"
			j.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(1))
		}))
	}
	shared.suspendedTo(t, namespace, true, 4*time.Minute, first.Process)
	paused := shared.job(t, namespace, "interruptible")
	worked, err := time.ParseDuration(paused.Annotations[v1alpha1.AnnotationWorked])
	if err != nil || worked <= 0 || worked > time.Since(paused.CreationTimestamp.Time) ||
		paused.Labels[v1alpha1.LabelHeld] != "true" {
		t.Errorf("paused Job: labels %v, annotations %v", paused.Labels, paused.Annotations)
	}
	kit.Eventually(t, time.Minute, "the pods of the paused Job are deleted", func() bool {
		return shared.job(t, namespace, "interruptible").Status.Active == 0
	})
	first.Kill()
	shared.forgetLeases(t)
	second := shared.scheduler(t, "pauses-2", shared.minutes(t))
	shared.suspendedTo(t, namespace, false, 4*time.Minute, second.Process)
	kit.Eventually(t, time.Minute, "the resumed Job runs", func() bool {
		return shared.job(t, namespace, "interruptible").Status.Active == 1
	})
	steady := shared.job(t, namespace, "steady")
	if *steady.Spec.Suspend || steady.Annotations[v1alpha1.AnnotationPauses] != "" {
		t.Errorf("a Job without the label was paused: %v", steady.Annotations)
	}
	events, err := shared.Client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.name=interruptible",
	})
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for i := range events.Items {
		reasons = append(reasons, events.Items[i].Reason)
	}
	if all := strings.Join(reasons, " "); !strings.Contains(all, "Paused") {
		t.Errorf("events %q, want one with the reason Paused", all)
	}
}

// suspendedTo waits until the interruptible Job has started and is suspended, or is resumed.
func (w *world) suspendedTo(t *testing.T, namespace string, want bool, within time.Duration, s *kit.Process,
) {
	t.Helper()
	kit.Eventually(t, within, "the Job is paused or resumed", func() bool {
		j := w.job(t, namespace, "interruptible")
		return *j.Spec.Suspend == want && (!want || j.Annotations[v1alpha1.AnnotationPauses] != "")
	}, s)
}

// minutes writes signals with a carbon intensity that alternates every minute.
func (w *world) minutes(t *testing.T) (path string) {
	values := make([]float64, 60)
	for i := range values {
		values[i] = 100 + 800*float64(i%2)
	}
	file := map[string]any{"apiVersion": "kubenergy.io/v1alpha1", "kind": "Signals", "sites": []any{map[string]any{
		"name": "here", "carbon": map[string]any{
			"start": time.Now().UTC().Truncate(2 * time.Minute), "step": "1m", "values": values, "quality": "estimated",
		},
	}}}
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return kit.Write(t, filepath.Join(t.TempDir(), "signals.json"), raw)
}
