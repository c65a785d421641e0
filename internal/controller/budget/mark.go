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
	maxMarked    = 1000 // Jobs and pods that an action writes on
	marksAtATime = 4    // so that most connections are left for suspending
)

// mark writes on the Jobs and pods that count, and that go on, that the budget is exceeded.
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
		e.o.Log.Warn("an EnergyBudget counts more than is marked", "namespace", b.Namespace, "budget", b.Name,
			"objects", len(objects), "marked", maxMarked)
		objects = objects[:maxMarked]
	}
	_, failed := inParallel(e.o.Log, marksAtATime, objects, func(o client.Object) error {
		return e.patchLatest(ctx, o, false, func(o client.Object) []byte {
			if selection.SelectorFromSet(annotations).Matches(selection.Set(o.GetAnnotations())) &&
				selection.SelectorFromSet(labels).Matches(selection.Set(o.GetLabels())) { // it is written
				return nil
			}
			return kube.MarkPatch(o, annotations, labels, false)
		})
	})
	return summary("writing on Jobs and pods", failed, nil)
}

// goesOn reports whether a Job has not ended, or a pod lives that no Job runs.
func goesOn(o client.Object) bool {
	switch o := o.(type) {
	case *batchv1.Job:
		return policy.NotSuspended(o) != "it has ended"
	case *v1.Pod:
		return o.Status.Phase != v1.PodSucceeded && o.Status.Phase != v1.PodFailed && !runByJob(o)
	}
	return false
}

// exceeded returns what is written on what has used up a budget. By how much is written only where a limit of energy is
// used up. With gardener the keys of Compute Gardener are written too.
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
