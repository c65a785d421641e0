package explain

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// namespaceState describes the settings of a namespace for a Job without settings of its own.
func (e *Explainer) namespaceState(ctx context.Context, s *subject, settings *policy.Settings) {
	name := s.object.GetNamespace()
	_, optedIn := e.View.Mode(name)
	why, never := policy.NeverHeld(s.object)
	switch {
	case never:
		e.say(StateNotIn, "No workload is held: %s.", why)
	case e.noMode:
		e.say(UnknownMode, "It is unknown whether the namespace has opted in.")
	case !optedIn:
		e.say(StateNotIn, "The namespace has not opted in. Only annotated workloads are managed, in mode %s (%s). To "+
			"opt in: kubectl label namespace %s %s=shadow.", settings.Mode, cmdutil.ModeMeans[settings.Mode], name,
			v1alpha1.LabelMode)
	case settings.AllowedDelay > 0:
		e.say(StateOptedIn, "The mode is %s: %s. Jobs without annotations may be held for at most %v.", settings.Mode,
			cmdutil.ModeMeans[settings.Mode], settings.AllowedDelay)
	default:
		e.say(StateOptedIn, "The mode is %s: %s. Only workloads with the annotation %s may be held, because no delay "+
			"is allowed by default.", settings.Mode, cmdutil.ModeMeans[settings.Mode], v1alpha1.AnnotationAllowedDelay)
	}
	e.heldIn(ctx, name)
	e.policyOf(ctx, name)
	e.budgetsOf(ctx, name)
}

// heldIn adds the number of held Jobs.
func (e *Explainer) heldIn(ctx context.Context, namespace string) {
	held := 0
	err := cmdutil.EachItem(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHeld + "=true"},
		e.BatchV1().Jobs(namespace).List, func(*batchv1.Job) { held++ })
	if err != nil {
		e.unseen("held Jobs: " + cmdutil.Because(err))
		return
	}
	if held > 0 {
		e.out.Sentence += fmt.Sprintf(" %s currently held: see kubenergy held -n %s.",
			humanize.Plural(held, "Job is", "Jobs are"), namespace)
	}
}

// policyOf adds the shadow statistics and the problems of the namespace's own policy.
func (e *Explainer) policyOf(ctx context.Context, namespace string) {
	var p v1alpha1.EnergyPolicy
	path := cmdutil.ResourcePath + "namespaces/" + namespace + "/energypolicies/" + v1alpha1.PolicyName
	if cmdutil.GetJSON(ctx, e.Cluster, path, &p) != nil {
		return // it does not exist, or lacks has reported that it cannot be read
	}
	if err := policy.ReadPolicy(&p); err != nil {
		e.out.Warnings = append(e.out.Warnings, "EnergyPolicy is ignored: "+cmdutil.OneLine(err))
	}
	for _, f := range e.View.FindPolicy(namespace) {
		e.out.Warnings = append(e.out.Warnings, "EnergyPolicy: "+f.String())
	}
	if c := p.Status.Shadow; c != nil && c.Decided > 0 {
		e.out.Sentence += fmt.Sprintf(" Decisions that were not applied: %d of %d would have been holds and saved an "+
			"estimated %.4g gCO2e.", c.Held, c.Decided, c.SavedGrams)
	}
}

// budgetsOf lists the budgets of the namespace.
func (e *Explainer) budgetsOf(ctx context.Context, namespace string) {
	var list v1alpha1.EnergyBudgetList
	if cmdutil.GetJSON(ctx, e.Cluster, cmdutil.ResourcePath+"namespaces/"+namespace+"/energybudgets", &list) != nil {
		return // as in policyOf
	}
	for _, b := range list.Items {
		used := dashboard.UsedBudget{
			Name: b.Name, Period: b.Spec.Period.Type, Percent: b.Status.Percent, Suspended: b.Status.Suspended,
		}
		if policy.Closes(&b) {
			used.ClosedUntil = &b.Status.ClosedUntil.Time
		}
		e.out.Budgets = append(e.out.Budgets, used)
	}
}
