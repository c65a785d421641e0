package kube

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// BudgetSuspendPatch returns a patch that suspends a Job for a budget, unless the Job has changed. until is the end
// of the budget's period, or zero if there is none.
func BudgetSuspendPatch(j *batchv1.Job, budget string, until time.Time) []byte {
	ops := append(asSeen(j), put("/metadata/labels", j.Labels, v1alpha1.LabelBudgetSuspended, budget),
		op("add", "/spec/suspend", true))
	if !until.IsZero() {
		ops = append(ops, put("/metadata/annotations", j.Annotations, v1alpha1.AnnotationBudgetSuspendedTill,
			until.UTC().Format(time.RFC3339)))
	} else if _, old := j.Annotations[v1alpha1.AnnotationBudgetSuspendedTill]; old {
		ops = append(ops, drop("/metadata/annotations", v1alpha1.AnnotationBudgetSuspendedTill))
	}
	return render(ops)
}

// BudgetResumePatch returns a patch that resumes a Job suspended by a budget, unless the Job has changed, and
// removes the label. A Job in a queue of Kueue remains suspended, because Kueue resumes it itself. If final is set,
// the budget does not suspend the Job again.
func BudgetResumePatch(j *batchv1.Job, final bool) []byte {
	ops := append(asSeen(j), drop("/metadata/labels", v1alpha1.LabelBudgetSuspended))
	if final {
		ops = append(ops, put("/metadata/annotations", j.Annotations, v1alpha1.AnnotationBudgetReleased,
			j.Labels[v1alpha1.LabelBudgetSuspended]))
	}
	if _, ok := j.Annotations[v1alpha1.AnnotationBudgetSuspendedTill]; ok {
		ops = append(ops, drop("/metadata/annotations", v1alpha1.AnnotationBudgetSuspendedTill))
	}
	if _, queued := j.Labels[policy.LabelKueueQueue]; !queued {
		ops = append(ops, op("add", "/spec/suspend", false))
	}
	return render(ops)
}

// put returns an operation that sets one entry of a map. The map is created if it is empty. Other entries are not
// written, because their cached values may be truncated.
func put(path string, have map[string]string, key, value string) patchOp {
	if len(have) == 0 {
		return op("add", path, map[string]string{key: value})
	}
	return op("add", path+"/"+escape(key), value)
}

func drop(path, key string) patchOp { return patchOp{Op: "remove", Path: path + "/" + escape(key)} }

// asSeen returns operations that make a patch fail unless the object is unchanged.
func asSeen(o metav1.Object) []patchOp {
	return []patchOp{
		op("test", "/metadata/uid", o.GetUID()), op("test", "/metadata/resourceVersion", o.GetResourceVersion()),
	}
}

// MarkPatch returns a merge patch that sets annotations and labels on an object and optionally suspends it. The
// patch fails if the object has changed.
func MarkPatch(o metav1.Object, annotations, labels map[string]string, suspend bool) []byte {
	metadata := map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}
	if len(annotations) > 0 { // null would remove all existing annotations
		metadata["annotations"] = annotations
	}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	patch := map[string]any{"metadata": metadata}
	if suspend {
		patch["spec"] = map[string]any{"suspend": true}
	}
	return render(patch)
}
