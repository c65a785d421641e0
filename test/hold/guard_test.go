package hold

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

// guardHolds uses the service account of the scheduler to try changes of Jobs that must be denied.
func (w *world) guardHolds(t *testing.T, namespace string) {
	_, config := w.Account(t, account)
	us, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w.createJob(t, namespace, newJob("guarded", "1h", nil))
	w.createJob(t, namespace, newJob("foreign", "1h",
		func(j *batchv1.Job) { delete(j.Annotations, v1alpha1.AnnotationAllowedDelay) }))
	w.createJob(t, namespace, newJob("elastic", "1h", func(j *batchv1.Job) {
		delete(j.Annotations, v1alpha1.AnnotationAllowedDelay)
		j.Labels = map[string]string{v1alpha1.LabelInterruptible: "true"}
		j.Annotations[v1alpha1.AnnotationReplicas], j.Annotations[v1alpha1.AnnotationElasticIndexes] = "2-4", "true"
		j.Spec.Parallelism = new(int32(2))
		j.Spec.Completions, j.Spec.CompletionMode = new(int32(2)), new(batchv1.IndexedCompletion)
	}))
	kit.Eventually(t, 20*time.Second, "the Job is held", func() bool {
		return w.job(t, namespace, "guarded").Annotations[v1alpha1.AnnotationHeldUntil] != ""
	})
	for what, c := range map[string]struct{ job, patch string }{
		"suspend a Job without the label": {"foreign", `{"spec":{"suspend":true}}`},
		"pause a Job without the label": {
			"foreign", `{"metadata":{"labels":{"kubenergy.io/held":"true"}},"spec":{"suspend":true}}`,
		},
		"pause a Job that it makes interruptible": {
			"foreign",
			`{"metadata":{"labels":{"kubenergy.io/held":"true","kubenergy.io/interruptible":"true"}},"spec":{"suspend":true}}`,
		},
		"label a Job":                     {"foreign", `{"metadata":{"labels":{"kubenergy.io/held":"true"}}}`},
		"change the parallelism":          {"guarded", `{"spec":{"parallelism":50}}`},
		"use more replicas than allowed":  {"elastic", `{"spec":{"parallelism":5,"completions":5}}`},
		"use fewer replicas than allowed": {"elastic", `{"spec":{"parallelism":1,"completions":1}}`},
		"change the range of replicas":    {"elastic", `{"metadata":{"annotations":{"kubenergy.io/replicas":"1-9"}}}`},
		"declare indexes elastic":         {"guarded", `{"metadata":{"annotations":{"kubenergy.io/elastic-indexes":"true"}}}`},
		"make a held Job interruptible": {
			"guarded", `{"metadata":{"labels":{"kubenergy.io/interruptible":"true"}}}`,
		},
		"suspend an elastic Job without holding it": {"elastic", `{"spec":{"suspend":true}}`},
		"run other completions than replicas":       {"elastic", `{"spec":{"parallelism":3,"completions":4}}`},
		"change the pods' node selector":            {"guarded", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`},
		"change a foreign label":                    {"guarded", `{"metadata":{"labels":{"app":"x"}}}`},
		"change a foreign annotation":               {"guarded", `{"metadata":{"annotations":{"a":"b"}}}`},
		"add a finalizer":                           {"guarded", `{"metadata":{"finalizers":["a.b/c"]}}`},
		"add an owner": {
			"guarded",
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`,
		},
	} {
		if _, err := us.BatchV1().Jobs(namespace).Patch(t.Context(), c.job, types.MergePatchType, []byte(c.patch),
			metav1.PatchOptions{}); err == nil {
			t.Errorf("service account of the scheduler can %s", what)
		}
	}
	if err := us.BatchV1().Jobs(namespace).Delete(t.Context(), "guarded",
		metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting a Job: got error %v, want forbidden", err)
	}
	_, err = us.BatchV1().Jobs(namespace).Patch(t.Context(), "guarded", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"kubenergy.io/held":null}},"spec":{"suspend":false}}`), metav1.PatchOptions{})
	if err != nil {
		t.Errorf("service account of the scheduler cannot resume a held Job: %v", err)
	}
	if _, err = us.BatchV1().Jobs(namespace).Patch(t.Context(), "elastic", types.MergePatchType,
		[]byte(`{"spec":{"parallelism":4,"completions":4}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("service account of the scheduler cannot scale an elastic Job: %v", err)
	}
}
