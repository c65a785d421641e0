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

// allowance is the budget of a single Job, or of a pod that is not run by a Job.
type allowance struct {
	account
	job      *batchv1.Job // the object if it is a Job
	label    string
	id       string // depends on the limits, so that actions are repeated after a limit is raised
	actions  []v1alpha1.BudgetAction
	gardener bool
	siblings []*allowance // all allowances of the same object
}

// urgency returns 0 if an action suspends, otherwise 1. Allowances are processed in ascending order.
func (a *allowance) urgency() int {
	least := 1
	for i := range a.actions {
		least = min(least, rank(a.actions[i].Do))
	}
	return least
}

// percent returns the utilization in percent, or 0 if the usage is unknown.
func (a *allowance) percent() float64 {
	if a.use == nil {
		return 0
	}
	return rounded(a.use.percent(a.limits))
}

// suspends reports whether the Job remains suspended. An exhausted budget remains exhausted if the ledger is
// unavailable.
func (a *allowance) suspends() bool {
	begun := readRecord(a.object.GetAnnotations()[v1alpha1.AnnotationBudgetActions])
	return slices.ContainsFunc(a.actions, func(x v1alpha1.BudgetAction) bool {
		return x.Do == v1alpha1.DeedSuspend && hasKey(begun, a.key(&x)) &&
			(a.use == nil || a.percent() >= float64(threshold(&x)))
	})
}

// allowances returns the allowances of all workloads and sets their usage. The result listed is false if they could
// not be listed. Ledger queries use the context asking.
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

// givingNamespaces returns the namespaces that set a budget for each of their workloads.
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

// candidates returns the Jobs and pods that may have their own budget: all objects with a budget annotation, and
// all objects in namespaces with a budget for each workload.
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

// ownersOf returns the owners that are charged for the energy of a Job or pod.
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

// jobsAndPods returns the Jobs and pods that match a list option.
func (e *Engine) jobsAndPods(ctx context.Context, wanted client.ListOption) (all []client.Object, err error) {
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &v1.PodList{}} {
		if err := e.o.Client.List(ctx, list, wanted); err != nil {
			return nil, fmt.Errorf("listing Jobs and pods: %w", err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error { // fails only if the argument is not a list
			all = append(all, o.(client.Object))
			return nil
		})
	}
	return all, nil
}

// allowancesOf returns the allowances of an object, from its annotations, its namespace and the budgets per
// workload.
func (e *Engine) allowancesOf(o client.Object, each []*v1alpha1.EnergyBudget,
	giving *policy.NamespaceMarks,
) (all []*allowance) {
	work, _ := policy.Read(o) // invalid annotations are ignored
	annotations := []map[string]string{o.GetAnnotations()}
	job, _ := o.(*batchv1.Job)
	if job != nil {
		annotations = append(annotations, job.Spec.Template.Annotations)
	}
	own, ok, err := policy.ReadAllowance(giving, work.Type, annotations...)
	if err != nil {
		e.o.Log.Debug("Ignored an invalid budget", "namespace", o.GetNamespace(), "name", o.GetName(), "error", err)
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

// withEvent returns the action and an additional event, as Compute Gardener creates one for every action.
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
