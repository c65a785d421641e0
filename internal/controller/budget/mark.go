package budget

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	selection "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

const (
	maxMarked    = 1000 // maximum number of Jobs and pods marked by an action
	marksAtATime = 4    // concurrency; most connections remain available for suspending
)

// mark marks all unfinished Jobs and pods in the scope of a budget as exceeding it.
func (e *Engine) mark(ctx context.Context, c *budgetCase, t *v1alpha1.BudgetActionTaken) error {
	b := c.budget
	objects, err := e.jobsAndPods(ctx, client.InNamespace(b.Namespace))
	if err != nil {
		return err
	}
	annotations, labels := exceeded(t.Do, c.use, &b.Spec.Limits, false)
	objects = slices.DeleteFunc(objects, func(o client.Object) bool {
		return !goesOn(o) || !e.ownersOf(o).InScope(&b.Spec.Scope)
	})
	if len(objects) > maxMarked {
		e.o.Log.Warn("Marking only some objects in the scope of a budget", "namespace", b.Namespace, "budget", b.Name,
			"objects", len(objects), "marked", maxMarked)
		objects = objects[:maxMarked]
	}
	_, failed := inParallel(e.o.Log, marksAtATime, objects, func(o client.Object) error {
		return e.patchLatest(ctx, o, false, func(o client.Object) []byte {
			if selection.SelectorFromSet(annotations).Matches(selection.Set(o.GetAnnotations())) &&
				selection.SelectorFromSet(labels).Matches(selection.Set(o.GetLabels())) { // already marked
				return nil
			}
			return kube.MarkPatch(o, annotations, labels, false)
		})
	})
	return summary("marking Jobs and pods", failed, nil)
}

// goesOn reports whether o is an unfinished Job, or an unfinished pod that is not run by a Job.
func goesOn(o client.Object) bool {
	switch o := o.(type) {
	case *batchv1.Job:
		return !policy.Ended(o)
	case *v1.Pod:
		return o.Status.Phase != v1.PodSucceeded && o.Status.Phase != v1.PodFailed && !runByJob(o)
	}
	return false
}

// exceeded returns the annotations or labels that mark a workload as exceeding its budget. The exceeded amount is
// included only if an energy limit is exceeded. If gardener is true, the keys of Compute Gardener are set too.
func exceeded(do v1alpha1.BudgetDeed, used *use, limits *v1alpha1.BudgetLimits,
	gardener bool,
) (annotations, labels map[string]string) {
	marks := map[string]string{v1alpha1.AnnotationBudgetExceeded: "true"}
	if gardener {
		marks[policy.GardenerBudgetExceeded] = "true"
	}
	if do == v1alpha1.DeedLabel {
		return nil, marks
	}
	if over, ok := used.over(limits); ok {
		marks[v1alpha1.AnnotationBudgetExceededBy] = fmt.Sprintf("%.6f", over)
		if gardener {
			marks[policy.GardenerBudgetExceededBy] = marks[v1alpha1.AnnotationBudgetExceededBy]
		}
	}
	return marks, nil
}
