package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
)

// suspends reports whether a budget keeps Jobs suspended.
func (c *budgetCase) suspends(now time.Time) bool {
	return c.err == nil && c.period.holds(now) && inForce(&c.budget.Status, v1alpha1.DeedSuspend) &&
		statusPeriod(&c.budget.Status).same(c.period)
}

// suspendFor suspends the Jobs of a budget that run.
func (e *Engine) suspendFor(ctx context.Context, c *budgetCase, now time.Time) error {
	var jobs batchv1.JobList
	if err := e.o.Client.List(ctx, &jobs, client.InNamespace(c.budget.Namespace)); err != nil {
		return fmt.Errorf("listing Jobs: %w", err)
	}
	label := kube.BudgetLabel(c.budget.Name)
	var running []*batchv1.Job
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if owners := kube.JobOwners(j); owners.InScope(&c.budget.Spec.Scope) && maySuspend(j, label) {
			running = append(running, j)
		}
	}
	if len(running) == 0 {
		return nil
	}
	if err := e.mayNow(ctx); err != nil {
		return err
	}
	stopped := make([]bool, len(running))
	failed := e.each(running, func(i int, j *batchv1.Job) error {
		err := e.suspend(ctx, j, label, c.period.to)
		stopped[i] = err == nil
		return err
	})
	e.sayJobs(those(running, stopped), eventSuspended, saidSuspended(label), now)
	return failed.first("suspending Jobs")
}

// each does something with several Jobs at a time. That one has changed is no failure: the next look sees it as it is.
func (e *Engine) each(jobs []*batchv1.Job, do func(i int, j *batchv1.Job) error) *failures {
	var failed failures
	work := errgroup.Group{}
	work.SetLimit(parallel)
	for i, j := range jobs {
		work.Go(func() error {
			if err := do(i, j); !errors.Is(err, errChanged) {
				failed.add(err)
			}
			return nil
		})
	}
	_ = work.Wait() // what failed is in failed
	return &failed
}

func those(jobs []*batchv1.Job, which []bool) (some []*batchv1.Job) {
	for i, j := range jobs {
		if which[i] {
			some = append(some, j)
		}
	}
	return some
}

// mayNow is asked right before anything is suspended: an uninstall takes the switch away, and resumes everything.
func (e *Engine) mayNow(ctx context.Context) error {
	may, err := e.o.MaySuspend(ctx)
	if err != nil {
		return fmt.Errorf("whether anything may be suspended is not known: %w", err)
	}
	if !may {
		return errors.New("nothing may be suspended here: the binding of the policy kubenergy-hold is not there")
	}
	return nil
}

func maySuspend(j *batchv1.Job, label string) bool {
	return kube.NotSuspended(j) == "" && j.Annotations[kube.AnnotationBudgetReleased] != label &&
		j.DeletionTimestamp == nil
}

func (e *Engine) suspend(ctx context.Context, j *batchv1.Job, label string, until time.Time) error {
	err := e.patch(ctx, j, types.JSONPatchType, kube.BudgetSuspendPatch(j, label, until))
	if err == nil {
		e.metrics.suspended.WithLabelValues(j.Namespace).Inc()
	}
	return err
}

func saidSuspended(label string) func(*batchv1.Job) string {
	return func(*batchv1.Job) string {
		return "suspended, its pods are deleted: the energy budget " + label + " is used up"
	}
}

// sayJobs tells the owners of Jobs. That is a courtesy: what goes wrong is not tried again.
func (e *Engine) sayJobs(jobs []*batchv1.Job, reason string, text func(*batchv1.Job) string, now time.Time) {
	if len(jobs) == 0 {
		return
	}
	e.send(e.telling, &errand{do: func(ctx context.Context) {
		for _, j := range jobs {
			about := v1.ObjectReference{
				APIVersion: "batch/v1", Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID,
			}
			if err := e.event(ctx, about, reason, digest(string(j.UID), j.ResourceVersion, reason), text(j),
				now); err != nil {
				e.o.Log.Debug("telling of a Job", "error", err)
			}
		}
	}})
}

// resumeAll resumes what no budget suspends any longer.
func (e *Engine) resumeAll(ctx context.Context, s *scene) {
	if s.marks.err != nil {
		return
	}
	var over []*batchv1.Job
	for _, j := range s.marks.jobs {
		if s.over(j) {
			over = append(over, j)
		}
	}
	resumed := make([]bool, len(over))
	failed := e.each(over, func(i int, j *batchv1.Job) error {
		err := e.patch(ctx, j, types.JSONPatchType, kube.BudgetResumePatch(j, false))
		resumed[i] = err == nil
		return err
	})
	e.sayJobs(those(over, resumed), eventResumed, func(j *batchv1.Job) string {
		return "resumed: the energy budget " + j.Labels[kube.LabelBudgetSuspended] + " no longer keeps it"
	}, s.now)
	if err := failed.first("resuming Jobs"); err != nil {
		e.o.Log.Warn("a budget's Jobs are not resumed yet: trying again", "error", err)
	}
}

// over reports whether a Job that a budget suspended is to be resumed. Where it is not known whether a budget keeps
// it, what is written on it says until when it does.
func (s *scene) over(j *batchv1.Job) bool {
	label := j.Labels[kube.LabelBudgetSuspended]
	kept := slices.ContainsFunc(s.shared, func(c *budgetCase) bool {
		owners := kube.JobOwners(j)
		return c.budget.Namespace == j.Namespace && kube.BudgetLabel(c.budget.Name) == label && c.suspends(s.now) &&
			owners.InScope(&c.budget.Spec.Scope)
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
	until, err := time.Parse(time.RFC3339, j.Annotations[kube.AnnotationBudgetSuspendedTill])
	return err == nil && !until.After(s.now)
}
