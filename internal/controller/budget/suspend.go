package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// HoldsEnabled returns a function for [Options.MaySuspend]. Budgets suspend Jobs only while the binding of the
// admission policy exists. An uninstall, or an administrator in an emergency, first deletes the binding and then
// resumes all Jobs, so that no Job is suspended afterwards. The reader must not be a cache.
func HoldsEnabled(direct client.Reader) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		name := types.NamespacedName{Name: kube.HoldPolicy}
		err := direct.Get(ctx, name, &admissionv1.MutatingAdmissionPolicyBinding{})
		if apierrors.IsNotFound(err) {
			return ErrHoldsOff
		} else if err != nil {
			return fmt.Errorf("reading the binding of the policy kubenergy-hold: %w", err)
		}
		return nil
	}
}

// ErrHoldsOff is returned if holding Jobs is disabled.
var ErrHoldsOff = errors.New("suspending Jobs is disabled: the binding of the policy kubenergy-hold does not exist")

// suspends reports whether a budget suspends Jobs now.
func (c *budgetCase) suspends(now time.Time) bool {
	return c.err == nil && c.period.holds(now) && inForce(&c.budget.Status, v1alpha1.DeedSuspend) &&
		c.period.isOf(&c.budget.Status)
}

// suspendFor suspends the running Jobs in the scope of a budget.
func (e *Engine) suspendFor(ctx context.Context, c *budgetCase) error {
	var jobs batchv1.JobList
	if err := e.o.Client.List(ctx, &jobs, client.InNamespace(c.budget.Namespace)); err != nil {
		return fmt.Errorf("listing Jobs: %w", err)
	}
	label := policy.BudgetLabel(c.budget.Name)
	var running []*batchv1.Job
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if e.ownersOf(j).InScope(&c.budget.Spec.Scope) && maySuspend(j, label) {
			running = append(running, j)
		}
	}
	if len(running) == 0 {
		return nil
	}
	// An uninstall disables holding and then resumes all Jobs.
	if err := e.o.MaySuspend(ctx); err != nil {
		return err
	}
	done, failed := inParallel(e.o.Log, parallel, running, func(j *batchv1.Job) error {
		return e.suspend(ctx, j, label, c.period.to)
	})
	e.sayJobs(done, eventSuspended, suspendedText(label))
	return summary("suspending Jobs", failed, errChanged) // changed Jobs are retried in the next sweep
}

func maySuspend(j *batchv1.Job, label string) bool {
	return policy.NotSuspended(j) == "" && j.Annotations[v1alpha1.AnnotationBudgetReleased] != label &&
		j.DeletionTimestamp == nil && !policy.CompletesWithoutPods(j)
}

func (e *Engine) suspend(ctx context.Context, j *batchv1.Job, label string, until time.Time) error {
	err := e.patch(ctx, j, types.JSONPatchType, kube.BudgetSuspendPatch(j, label, until))
	if err == nil {
		e.metrics.suspended.WithLabelValues(j.Namespace).Inc()
	}
	return err
}

func suspendedText(label string) string {
	return "suspended and its pods deleted because the energy budget " + label + " is exhausted"
}

// sayJobs creates events for Jobs that a budget suspended or resumed. The events are best effort and not retried.
func (e *Engine) sayJobs(jobs []*batchv1.Job, reason, text string) {
	if len(jobs) == 0 {
		return
	}
	e.tasks.add(telling, &task{do: func(ctx context.Context) {
		for _, j := range jobs {
			key := digest(string(j.UID), j.ResourceVersion, reason)
			if err := e.event(ctx, reference(j), reason, key, text); err != nil {
				e.o.Log.Debug("Failed to create event for Job", "error", err)
				if errors.Is(err, context.DeadlineExceeded) { // the remaining events would also time out
					return
				}
			}
		}
	}})
}

// resumeAll resumes all Jobs that are no longer suspended by a budget.
func (e *Engine) resumeAll(ctx context.Context, s *scene) {
	over := slices.DeleteFunc(slices.Clone(s.marks.jobs), func(j *batchv1.Job) bool { return !e.over(s, j) })
	done, failed := inParallel(e.o.Log, parallel, over, func(j *batchv1.Job) error {
		return e.patch(ctx, j, types.JSONPatchType, kube.BudgetResumePatch(j, false))
	})
	labelOf := func(j *batchv1.Job) string { return j.Labels[v1alpha1.LabelBudgetSuspended] }
	for label, jobs := range grouped(done, labelOf) {
		e.sayJobs(jobs, eventResumed, "resumed because the energy budget "+label+" no longer suspends it")
	}
	if err := summary("resuming Jobs", failed, errChanged); err != nil {
		e.o.Log.Warn("Failed to resume Jobs of budgets, retrying", "error", err)
	}
}

// over reports whether to resume a Job that was suspended by a budget. If the state of the budgets is unknown, the
// end of the suspension in the annotation of the Job is used.
func (e *Engine) over(s *scene, j *batchv1.Job) bool {
	label := j.Labels[v1alpha1.LabelBudgetSuspended]
	kept := slices.ContainsFunc(s.shared, func(c *budgetCase) bool {
		return c.budget.Namespace == j.Namespace && policy.BudgetLabel(c.budget.Name) == label && c.suspends(s.now) &&
			e.ownersOf(j).InScope(&c.budget.Spec.Scope)
	}) || slices.ContainsFunc(s.own, func(a *allowance) bool {
		return a.object.GetUID() == j.UID && a.label == label && a.suspends()
	})
	switch {
	case s.known && !s.enabled:
		return true
	case kept:
		return false
	case s.known && s.listed:
		return true
	}
	until, err := time.Parse(time.RFC3339, j.Annotations[v1alpha1.AnnotationBudgetSuspendedTill])
	return err == nil && !until.After(s.now)
}
