package kube

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
)

func runningJob(change func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "j", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "x"},
		},
		Spec: batchv1.JobSpec{Suspend: new(false)},
	}
	if change != nil {
		change(j)
	}
	return j
}

func patched(t *testing.T, j *batchv1.Job, patch []byte) *batchv1.Job {
	t.Helper()
	data, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = p.Apply(data); err != nil {
		t.Fatal(err)
	}
	after := &batchv1.Job{}
	if err := json.Unmarshal(data, after); err != nil {
		t.Fatal(err)
	}
	return after
}

func TestSuspendAndResume(t *testing.T) {
	for name, change := range map[string]func(*batchv1.Job){
		"with labels":    nil,
		"without labels": func(j *batchv1.Job) { j.Labels = nil },
		"annotated":      func(j *batchv1.Job) { j.Annotations = map[string]string{"a": "b"} },
		"no suspend":     func(j *batchv1.Job) { j.Spec.Suspend = nil },
	} {
		before := runningJob(change)
		stopped := patched(t, before, BudgetSuspendPatch(before, "month", noon))
		if !*stopped.Spec.Suspend || stopped.Labels[v1alpha1.LabelBudgetSuspended] != "month" ||
			stopped.Annotations[v1alpha1.AnnotationBudgetSuspendedTill] == "" ||
			stopped.Labels["app"] != before.Labels["app"] || stopped.Annotations["a"] != before.Annotations["a"] {
			t.Errorf("%s: %+v", name, stopped)
		}
		if policy.NotSuspended(stopped) == "" {
			t.Errorf("%s: the Job can be suspended again", name)
		}
		resumed := patched(t, stopped, BudgetResumePatch(stopped, false))
		if *resumed.Spec.Suspend || len(resumed.Labels) != len(before.Labels) ||
			len(resumed.Annotations) != len(before.Annotations) {
			t.Errorf("%s: %+v", name, resumed)
		}
		if !strings.Contains(string(BudgetResumePatch(stopped, false)),
			`"op":"test","path":"/metadata/resourceVersion","value":"7"`) {
			t.Errorf("%s: a modified Job can be resumed", name)
		}
		if final := patched(t, stopped, BudgetResumePatch(stopped, true)); *final.Spec.Suspend ||
			final.Annotations[v1alpha1.AnnotationBudgetReleased] != "month" {
			t.Errorf("%s: %+v", name, final)
		}
	}
}
