package kube

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// BudgetSuspendPatch suspends a Job for a budget, if it is as it was seen. until is the end of the budget's period;
// zero: there is none.
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

// BudgetResumePatch resumes a Job that a budget suspended, if it is as it was seen, and takes off the label. One in a
// queue of Kueue stays suspended, since Kueue resumes it itself. With final, that budget does not suspend it again.
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

// put sets one entry of a map, which has to be made where there is none. Others are left alone: what was seen of them
// may have been shortened.
func put(path string, have map[string]string, key, value string) patchOp {
	if len(have) == 0 {
		return op("add", path, map[string]string{key: value})
	}
	return op("add", path+"/"+escape(key), value)
}

func drop(path, key string) patchOp { return patchOp{Op: "remove", Path: path + "/" + escape(key)} }

// asSeen makes a patch fail unless it meets the very object that was seen, unchanged.
func asSeen(o metav1.Object) []patchOp {
	return []patchOp{
		op("test", "/metadata/uid", o.GetUID()), op("test", "/metadata/resourceVersion", o.GetResourceVersion()),
	}
}

// MarkPatch is a merge patch that writes annotations and labels of ours on an object, if it is as it was seen, and
// may suspend it in the same step.
func MarkPatch(o metav1.Object, annotations, labels map[string]string, suspend bool) []byte {
	metadata := map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}
	if len(annotations) > 0 { // null would take off all that there are
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
