package budget

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
)

// maxMarked is how many Jobs and pods an action writes on.
const maxMarked = 1000

// marked is how many of them are written on at a time: who suspends has more connections.
const marked = 4

// mark writes on the Jobs and pods that count, and that go on, that the budget is exceeded.
func (e *Engine) mark(ctx context.Context, c *budgetCase, t *v1alpha1.BudgetActionTaken) error {
	b := c.budget
	var objects []client.Object
	var jobs batchv1.JobList
	if err := e.o.Client.List(ctx, &jobs, client.InNamespace(b.Namespace)); err != nil {
		return fmt.Errorf("listing Jobs: %w", err)
	}
	for i := range jobs.Items {
		owners := kube.JobOwners(&jobs.Items[i])
		if why := kube.NotSuspended(&jobs.Items[i]); why != "it has ended" && owners.InScope(&b.Spec.Scope) {
			objects = append(objects, &jobs.Items[i])
		}
	}
	var pods v1.PodList
	if err := e.o.Client.List(ctx, &pods, client.InNamespace(b.Namespace)); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		if owners := kube.PodOwners(&pods.Items[i]); apart(&pods.Items[i]) && owners.InScope(&b.Spec.Scope) {
			objects = append(objects, &pods.Items[i])
		}
	}
	if len(objects) > maxMarked {
		e.o.Log.Warn("an EnergyBudget counts more than is marked", "namespace", b.Namespace, "budget", b.Name,
			"objects", len(objects), "marked", maxMarked)
		objects = objects[:maxMarked]
	}
	annotations, labels := exceeded(t.Do, c.use, &b.Spec.Limits, false)
	var failed failures
	work := errgroup.Group{}
	work.SetLimit(marked)
	for _, o := range objects {
		if has(o.GetAnnotations(), annotations) && has(o.GetLabels(), labels) {
			continue
		}
		work.Go(func() error {
			failed.add(e.markOne(ctx, o, annotations, labels))
			return nil
		})
	}
	_ = work.Wait() // what failed is in failed
	return failed.first("writing on Jobs and pods")
}

// markOne writes on an object as it is by now: whether others change it does not matter here.
func (e *Engine) markOne(ctx context.Context, o client.Object, annotations, labels map[string]string) error {
	const tries = 3
	var err error
	for range tries {
		if err = e.patch(ctx, o, types.MergePatchType, kube.MarkPatch(o, annotations, labels, false)); !errors.Is(err,
			errChanged) {
			return err
		}
		if err := e.o.Direct.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return err
}

func has(all, some map[string]string) bool {
	for k, v := range some {
		if all[k] != v {
			return false
		}
	}
	return true
}

// failures are errors of several that work at the same time.
type failures struct {
	mu  sync.Mutex
	all []error
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, err)
}

// first returns the first of them, as an error that says how many there were.
func (f *failures) first(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d went wrong, the first: %w", what, len(f.all), f.all[0])
}

// apart reports whether a pod lives and is not run by a Job.
func apart(p *v1.Pod) bool {
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(p)
	return owner == nil || owner.Kind != "Job"
}

// exceeded returns what is written on what has used up a budget: by how much only where there is a limit of energy
// that is.
func exceeded(do v1alpha1.BudgetDeed, used *use, limits *v1alpha1.BudgetLimits,
	theirs bool,
) (annotations, labels map[string]string) {
	const yes = "true"
	if do == v1alpha1.DeedLabel {
		labels = map[string]string{kube.AnnotationBudgetExceeded: yes}
		if theirs {
			labels[kube.GardenerBudgetExceeded] = yes
		}
		return nil, labels
	}
	annotations = map[string]string{kube.AnnotationBudgetExceeded: yes}
	if theirs {
		annotations[kube.GardenerBudgetExceeded] = yes
	}
	if over, ok := used.over(limits); ok {
		by := fmt.Sprintf("%.6f", over)
		annotations[kube.AnnotationBudgetExceededBy] = by
		if theirs {
			annotations[kube.GardenerBudgetExceededBy] = by
		}
	}
	return annotations, nil
}
