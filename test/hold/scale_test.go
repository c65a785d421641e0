package hold

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestScaling verifies on a real control plane, with the permissions and policies of the release, that running Jobs are
// given more pods in a clean hour: a work queue, a Job with more completions than pods, and an elastic indexed Job. Jobs
// that have not opted in, or with other numbers, keep their pods.
func TestScaling(t *testing.T) {
	namespace := shared.Namespace(t, "scaling", nil)
	hours := make([]float64, 48)
	for i := range hours {
		hours[i] = 900
	}
	now := time.Now().UTC().Truncate(time.Hour)
	if hours[0] = 100; time.Since(now) > 50*time.Minute {
		hours[1] = 100 // otherwise the rest of the hour may not be worth it
	}
	scheduler := shared.scheduler(t, "scaling", writeSignals(t, "1h", now, hours))
	indexed := new(batchv1.IndexedCompletion)
	for name, change := range map[string]func(j *batchv1.Job){
		"queue": func(j *batchv1.Job) { j.Spec.Completions = nil },
		"tasks": func(j *batchv1.Job) { j.Spec.Completions = new(int32(20)) },
		"indexed": func(j *batchv1.Job) {
			j.Spec.Completions, j.Spec.CompletionMode = new(int32(2)), indexed
			j.Annotations[v1alpha1.AnnotationElasticIndexes] = "true"
		},
		"shards": func(j *batchv1.Job) { j.Spec.Completions, j.Spec.CompletionMode = new(int32(2)), indexed },
		"steady": func(j *batchv1.Job) { j.Labels = nil },
		"few":    func(j *batchv1.Job) { j.Spec.Completions = new(int32(3)) },
	} {
		shared.createJob(t, namespace, newJob(name, "6h", func(j *batchv1.Job) {
			j.Labels = map[string]string{v1alpha1.LabelInterruptible: "true"}
			j.Annotations[v1alpha1.AnnotationStrategy] = "carbon+carbon-scaler"
			j.Annotations[v1alpha1.AnnotationExpectedDuration] = "4h"
			j.Annotations[v1alpha1.AnnotationReplicas] = "2-5"
			j.Annotations[v1alpha1.AnnotationSpeedup] = "1,1.5,1.9,1.9"
			j.Spec.Template.Annotations[v1alpha1.AnnotationLabRunSeconds] = "600"
			j.Spec.Parallelism = new(int32(2))
			change(j)
		}))
	}
	for _, name := range []string{"queue", "tasks", "indexed"} {
		kit.Eventually(t, time.Minute, "Job "+name+" runs on four replicas", func() bool {
			j := shared.job(t, namespace, name)
			return *j.Spec.Parallelism == 4 && j.Status.Active == 4
		}, scheduler.Process)
		j := shared.job(t, namespace, name)
		if at, err := time.Parse(time.RFC3339, j.Annotations[v1alpha1.AnnotationScaledAt]); err != nil ||
			time.Since(at) > 2*time.Minute || j.Annotations[v1alpha1.AnnotationPaused] != string(j.UID) {
			t.Errorf("annotations %v", j.Annotations)
		}
		want := map[string]*int32{"tasks": new(int32(20)), "indexed": new(int32(4))}[name]
		if got := j.Spec.Completions; (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("unexpected completions of %s", name)
		}
	}
	for _, name := range []string{"steady", "few", "shards"} {
		if j := shared.job(t, namespace, name); *j.Spec.Parallelism != 2 || j.Annotations[v1alpha1.AnnotationScaledAt] != "" {
			t.Errorf("Job %s was scaled to %d replicas", name, *j.Spec.Parallelism)
		}
	}
	events, err := shared.Client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scaled := slices.DeleteFunc(events.Items, func(e v1.Event) bool { return e.Reason != "Scaled" })
	if len(scaled) < 3 || !strings.HasPrefix(scaled[0].Message, "scaled from 2 to 4 replicas: ") {
		t.Errorf("events %v", scaled)
	}
}
