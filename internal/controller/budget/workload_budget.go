package budget

import (
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/cached"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// allowance is what one Job, or one pod that no Job runs, may use for itself.
type allowance struct {
	account
	job      *batchv1.Job // object, if it is a Job
	label    string
	id       string // differs where the limits do: a raised limit is one of which nothing was done yet
	actions  []v1alpha1.BudgetAction
	gardener bool
	siblings []*allowance // all of the same object
}

// urgency is 0 for allowances that suspend, which come first.
func (a *allowance) urgency() int {
	least := 1
	for i := range a.actions {
		least = min(least, rank(a.actions[i].Do))
	}
	return least
}

// percent is of what is known.
func (a *allowance) percent() float64 {
	if a.use == nil {
		return 0
	}
	return rounded(a.use.percent(a.limits))
}

// suspends reports whether the Job is kept suspended: what is used up stays so, whether the ledger answers or not.
func (a *allowance) suspends() bool {
	begun := readRecord(a.object.GetAnnotations()[v1alpha1.AnnotationBudgetActions])
	return slices.ContainsFunc(a.actions, func(x v1alpha1.BudgetAction) bool {
		return x.Do == v1alpha1.DeedSuspend && hasKey(begun, a.key(&x)) &&
			(a.use == nil || a.percent() >= float64(threshold(&x)))
	})
}

// allowances returns everything that has a budget for itself, if that is listed, with what it used, if there is no
// error. The ledger is asked as long as asking lasts.
func (e *Engine) allowances(ctx, asking context.Context, s *scene) (all []*allowance, listed bool, err error) {
	namespaces, err := e.givingNamespaces(ctx)
	if err != nil {
		return nil, false, err
	}
	each := grouped(s.each, (*v1alpha1.EnergyBudget).GetNamespace)
	objects, err := e.candidates(ctx, namespaces, each)
	if err != nil {
		return nil, false, err
	}
	for _, o := range objects {
		all = append(all, e.allowancesOf(o, each[o.GetNamespace()], namespaces[o.GetNamespace()])...)
	}
	return all, true, e.askOwn(asking, all, s.now)
}

// givingNamespaces returns the namespaces that give a budget to each of their workloads.
func (e *Engine) givingNamespaces(ctx context.Context) (map[string]*policy.NamespaceMarks, error) {
	var list v1.NamespaceList
	if err := e.o.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	giving := map[string]*policy.NamespaceMarks{}
	for i := range list.Items {
		n := &list.Items[i]
		m := &policy.NamespaceMarks{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations}
		if m.GivesAllowance() {
			giving[n.Name] = m
		}
	}
	return giving, nil
}

// candidates returns the Jobs and pods that may have a budget for themselves: those whose annotations speak of one, and
// all in namespaces that give one to each.
func (e *Engine) candidates(ctx context.Context, giving map[string]*policy.NamespaceMarks,
	each map[string][]*v1alpha1.EnergyBudget,
) ([]client.Object, error) {
	all, err := e.jobsAndPods(ctx, client.MatchingFields{cached.AllowanceIndex: cached.MayHaveAllowance})
	if err != nil {
		return nil, err
	}
	namespaces := append(sortedKeys(giving), sortedKeys(each)...)
	for _, namespace := range namespaces {
		some, err := e.jobsAndPods(ctx, client.InNamespace(namespace))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	seen := map[types.UID]bool{}
	return slices.DeleteFunc(all, func(o client.Object) bool {
		drop := seen[o.GetUID()] || runByJob(o)
		seen[o.GetUID()] = true
		return drop
	}), nil
}

// ownersOf returns the owners that the energy of a Job or pod is charged to.
func (e *Engine) ownersOf(o client.Object) *policy.Owners {
	var owners policy.Owners
	switch o := o.(type) {
	case *batchv1.Job:
		owners = policy.JobOwners(o)
	case *v1.Pod:
		owners = policy.PodOwners(o)
	}
	owners.Team = e.o.TeamOf(o.GetNamespace(), owners.Team)
	return &owners
}

func runByJob(o client.Object) bool {
	p, ok := o.(*v1.Pod)
	return ok && strings.HasPrefix(policy.PodOwners(p).Owner, "Job/")
}

// jobsAndPods returns those that are wanted.
func (e *Engine) jobsAndPods(ctx context.Context, wanted client.ListOption) (all []client.Object, err error) {
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &v1.PodList{}} {
		if err := e.o.Client.List(ctx, list, wanted); err != nil {
			return nil, fmt.Errorf("listing Jobs and pods: %w", err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error { // it fails for what is no list
			all = append(all, o.(client.Object))
			return nil
		})
	}
	return all, nil
}

// allowancesOf returns what one object may use: what its annotations or its namespace say, and each budget per
// workload.
func (e *Engine) allowancesOf(o client.Object, each []*v1alpha1.EnergyBudget,
	giving *policy.NamespaceMarks,
) (all []*allowance) {
	work, _ := policy.Read(o) // what makes no sense counts as absent
	annotations := []map[string]string{o.GetAnnotations()}
	job, _ := o.(*batchv1.Job)
	if job != nil {
		annotations = append(annotations, job.Spec.Template.Annotations)
	}
	own, ok, err := policy.ReadAllowance(giving, work.Type, annotations...)
	if err != nil {
		e.o.Log.Debug("a budget that makes no sense counts as absent", "namespace", o.GetNamespace(), "name",
			o.GetName(), "error", err)
	}
	if ok {
		all = append(all, &allowance{
			account: account{
				object: o, name: policy.OwnBudget, limits: &v1alpha1.BudgetLimits{EnergyKWh: &own.KWh},
			},
			job: job, label: policy.OwnBudget, id: fmt.Sprint(own.KWh), gardener: own.Gardener,
			actions: withEvent(own.Deed),
		})
	}
	owners := e.ownersOf(o)
	for _, b := range each {
		if owners.InScope(&b.Spec.Scope) {
			all = append(all, &allowance{
				account: account{object: o, name: b.Name, limits: &b.Spec.Limits}, job: job,
				label: policy.BudgetLabel(b.Name), actions: b.Spec.Actions,
				id: string(b.UID) + limitsID(&b.Spec.Limits),
			})
		}
	}
	for _, a := range all {
		a.siblings = all
	}
	return all
}

// withEvent adds an event to the action, as Compute Gardener does with every action.
func withEvent(do v1alpha1.BudgetDeed) []v1alpha1.BudgetAction {
	actions := []v1alpha1.BudgetAction{{At: whole, Do: do}}
	if do != v1alpha1.DeedEvent {
		actions = append(actions, v1alpha1.BudgetAction{At: whole, Do: v1alpha1.DeedEvent})
	}
	return actions
}

func limitsID(l *v1alpha1.BudgetLimits) string {
	text := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprint(*v)
	}
	id := text(l.EnergyKWh) + " " + text(l.CarbonGrams) + " " + signalOf(l)
	if l.Cost != nil {
		id += " " + text(&l.Cost.Amount) + l.Cost.Currency
	}
	return id
}
