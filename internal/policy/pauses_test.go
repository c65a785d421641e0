package policy

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// TestInterruptibleJobs verifies which Jobs may be paused, and their latest resumption.
func TestInterruptibleJobs(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		labels, annotations map[string]string
		want                bool
		latest              time.Duration // since the creation
	}{
		"not started": {want: true, latest: 6 * time.Hour},
		"paused": {
			annotations: map[string]string{v1alpha1.AnnotationWorked: "4h", v1alpha1.AnnotationPauses: "1"},
			want:        true, latest: 10 * time.Hour,
		},
		"repeats work": {
			annotations: map[string]string{
				v1alpha1.AnnotationWorked: "4h", v1alpha1.AnnotationRestartCost: "10m",
				v1alpha1.AnnotationCheckpointInterval: "20m",
			},
			want: true, latest: 9*time.Hour + 50*time.Minute,
		},
		"copy of a paused Job": {
			annotations: map[string]string{v1alpha1.AnnotationWorked: "4h", v1alpha1.AnnotationPaused: "another"},
			want:        true, latest: 6 * time.Hour,
		},
		"longer than expected": { // it is expected to run for another 10 hours
			annotations: map[string]string{
				v1alpha1.AnnotationWorked:   "10h",
				v1alpha1.AnnotationFinishBy: created.Add(21 * time.Hour).Format(time.RFC3339),
			},
			want: true, latest: 11 * time.Hour,
		},
		"completion": { // 3 of 8 h of work remain, and 10 minutes are repeated
			annotations: map[string]string{
				v1alpha1.AnnotationWorked: "5h", v1alpha1.AnnotationRestartCost: "10m",
				v1alpha1.AnnotationFinishBy: created.Add(12 * time.Hour).Format(time.RFC3339),
			},
			want: true, latest: 8*time.Hour + 50*time.Minute,
		},
		"last pause": {
			annotations: map[string]string{v1alpha1.AnnotationMaxPauses: "2", v1alpha1.AnnotationPauses: "2"},
			latest:      6 * time.Hour,
		},
		"federation": {
			labels: map[string]string{"propagationpolicy.karmada.io/permanent-id": "1"}, latest: 6 * time.Hour,
		},
		"no label": {labels: map[string]string{v1alpha1.LabelInterruptible: "no"}, latest: 6 * time.Hour},
		"starting rule": {
			annotations: map[string]string{v1alpha1.AnnotationStrategy: "carbon+window"}, latest: 6 * time.Hour,
		},
		"joint plans": {
			annotations: map[string]string{v1alpha1.AnnotationStrategy: "carbon+plan"}, latest: 6 * time.Hour,
		},
	} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "j", UID: "its-own", CreationTimestamp: metav1.NewTime(created),
			Labels: map[string]string{v1alpha1.LabelInterruptible: "true"},
			Annotations: map[string]string{
				v1alpha1.AnnotationStrategy: "carbon+residual", v1alpha1.AnnotationAllowedDelay: "6h",
				v1alpha1.AnnotationExpectedDuration: "8h", v1alpha1.AnnotationPaused: "its-own",
			},
		}}
		for key, value := range tc.labels {
			job.Labels[key] = value
		}
		for key, value := range tc.annotations {
			job.Annotations[key] = value
		}
		work, err := ReadJob(job)
		if err != nil {
			t.Fatal(err)
		}
		c := Sources{Defaults: BuiltIn()}
		rules := c.Rules()
		got, _ := rules.Settle(&work)
		if got.Interruptible != tc.want || !got.LatestStart().Equal(created.Add(tc.latest)) {
			t.Errorf("%s: interruptible %v, latest resumption after %v, want %v and %v", name, got.Interruptible,
				got.LatestStart().Sub(created), tc.want, tc.latest)
		}
	}
}

// TestOnlyJobsArePaused verifies that annotations on pods, and on jobs of other batch systems, do not extend holds.
func TestOnlyJobsArePaused(t *testing.T) {
	annotations := map[string]string{
		v1alpha1.AnnotationAllowedDelay: "6h", v1alpha1.AnnotationWorked: "100h", v1alpha1.AnnotationPaused: "its-own",
	}
	pod, errPod := ReadPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "its-own", Annotations: annotations}})
	batch, errBatch := ReadBatch(Work{}, sched.Resources{}, annotations)
	c := Sources{Defaults: BuiltIn()}
	rules := c.Rules()
	for _, work := range []*Work{&pod, &batch} {
		job, _ := rules.Settle(work)
		if delay := job.LatestStart().Sub(job.Submitted); errPod != nil || errBatch != nil || delay != 6*time.Hour {
			t.Errorf("may wait for %v (errors %v, %v), want 6h", delay, errPod, errBatch)
		}
	}
}
