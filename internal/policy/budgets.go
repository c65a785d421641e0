package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Keys that KubEnergy also writes if a used-up budget is defined by annotations of Compute Gardener.
const (
	// `"true"`, an annotation or a label: the budget is used up
	GardenerBudgetExceeded = gardener + "energy-budget-exceeded"
	// kWh: energy in excess of the budget
	GardenerBudgetExceededBy = gardener + "energy-budget-exceeded-by"
)

// TeamOf returns the team in the labels of a pod. [Rules.TeamOf] determines whether it is charged.
func TeamOf(labels map[string]string) string {
	return cmp.Or(labels[v1alpha1.LabelTeam], labels[v1alpha1.LabelPartOf])
}

// OwnBudget is the name of a Job's own budget. It is not a valid name of an object.
const OwnBudget = "Own"

// BudgetLabel returns the label value for the name of a budget. Long names are shortened, because the max length of
// label values is smaller than that of names.
func BudgetLabel(name string) string {
	const longest, kept = 63, 50
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:kept], "-.") + "-" + hex.EncodeToString(sum[:4])
}

// ownDeeds maps the actions of a workload's own budget, in the terms of Compute Gardener, to those of KubEnergy.
var ownDeeds = map[string]v1alpha1.BudgetDeed{
	"log": v1alpha1.DeedLog, "notify": v1alpha1.DeedNotify, "annotate": v1alpha1.DeedAnnotate,
	"label": v1alpha1.DeedLabel,
	"event": v1alpha1.DeedEvent, "suspend": v1alpha1.DeedSuspend,
}

// maxBudget is more than the daily consumption of a country.
const maxBudget = 1e9 // in kWh

// budgetAnnotations are the annotations for a workload's own budget.
var budgetAnnotations = []annotation{
	{
		key: v1alpha1.AnnotationBudgetKWh, alias: gardener + "energy-budget-kwh",
		read: keep(positive(between[float64](0, maxBudget)), func(m *Marks) *float64 { return &m.BudgetKWh }),
	},
	{
		key: v1alpha1.AnnotationBudgetAction, alias: gardener + "energy-budget-action",
		read: keep(readDeed, func(m *Marks) *v1alpha1.BudgetDeed { return &m.BudgetDeed }),
	},
}

func readDeed(value string) (v1alpha1.BudgetDeed, error) {
	deed, ok := ownDeeds[value]
	switch {
	case value == "hold":
		return "", errors.New("only an EnergyBudget can hold new work; want suspend or an action that only reports")
	case !ok:
		return "", fmt.Errorf("want one of %s", strings.Join(slices.Sorted(maps.Keys(ownDeeds)), ", "))
	}
	return deed, nil
}

// Allowance is the energy budget of a workload over its lifetime.
type Allowance struct {
	KWh      float64
	Deed     v1alpha1.BudgetDeed
	Gardener bool // defined by annotations of Compute Gardener, so its result keys are written as well
}

// ReadAllowance returns a workload's own budget. The annotations of the Job take precedence over those of its pods
// and of the namespace n, which may be nil. ok is false if there is no budget.
func ReadAllowance(n *NamespaceMarks, workloadType string,
	from ...map[string]string,
) (a Allowance, ok bool, err error) {
	if n != nil && gardenerNamespace(n.Labels) {
		byType := gardenerKeys(n.Annotations)
		from = append(slices.Clone(from), byType[workloadType], byType[""])
	}
	var m Marks
	if err := m.read(budgetAnnotations, from); err != nil || m.BudgetKWh == 0 {
		return Allowance{}, false, err
	}
	a = Allowance{KWh: m.BudgetKWh, Deed: cmp.Or(m.BudgetDeed, v1alpha1.DeedLog)}
	for _, m := range from {
		if key, _, found := budgetAnnotations[0].in(m); found {
			a.Gardener = key != v1alpha1.AnnotationBudgetKWh
			break
		}
	}
	return a, true, nil
}

// MayHaveAllowance reports whether the annotations contain a budget. It only requires two map lookups.
func MayHaveAllowance(annotations map[string]string) bool {
	_, _, ok := budgetAnnotations[0].in(annotations)
	return ok
}

// Owners identifies the owners that are charged for the energy of a workload, with the same names as in the ledger.
type Owners struct {
	Owner  string // in the form kind/name
	Parent string // owner of the owner, e.g. a CronJob; empty if there is none
	Team   string
}

// JobOwners returns the owners of a Job's pods.
func JobOwners(j *batchv1.Job) Owners {
	o := Owners{Owner: "Job/" + j.Name, Team: TeamOf(j.Spec.Template.Labels)}
	if c := metav1.GetControllerOfNoCopy(j); c != nil {
		o.Parent = c.Kind + "/" + c.Name
	}
	return o
}

// PodOwners returns the owners of a pod, as far as they follow from the pod itself, see [OwnerOf].
func PodOwners(p *v1.Pod) Owners {
	kind, name := OwnerOf(p)
	return Owners{Owner: kind + "/" + name, Team: TeamOf(p.Labels)}
}

// InScope reports whether a budget covers the owners.
func (o *Owners) InScope(s *v1alpha1.BudgetScope) bool {
	return (len(s.Owners) == 0 || slices.Contains(s.Owners, o.Owner) ||
		o.Parent != "" && slices.Contains(s.Owners, o.Parent)) &&
		(len(s.Teams) == 0 || slices.Contains(s.Teams, o.Team))
}

// NotSuspended returns the reason why a budget must not suspend a running Job, or "" if it may. The reasons include
// the reasons for never holding a Job.
func NotSuspended(j *batchv1.Job) string {
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		return "already suspended"
	}
	if Ended(j) {
		return "already finished"
	}
	why, _ := NeverHeldJob(j)
	return why
}

// Ended reports whether a Job is complete or has failed.
func Ended(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == v1.ConditionTrue
	})
}

// CompletesWithoutPods reports whether the Job controller considers a Job complete as soon as it has no pods. This
// applies to a work queue after its first completed pod.
func CompletesWithoutPods(j *batchv1.Job) bool {
	counting := j.Status.UncountedTerminatedPods
	return j.Spec.Completions == nil && (j.Status.Succeeded > 0 || counting != nil && len(counting.Succeeded) > 0)
}

// closing is a used-up budget that holds new work.
type closing struct {
	name  string
	scope v1alpha1.BudgetScope
	until time.Time // at most endOfTime
	asOf  time.Time // time of the budget's status
}

// budgetBelief is how long the status of a budget remains valid, so that no work is held because of an outdated
// status if the controller is not running.
const budgetBelief = 6 * time.Minute

// BudgetClosed returns the latest time until which a used-up budget holds new work of the owners, and the name of
// that budget.
func (r *Rules) BudgetClosed(now time.Time, namespace string, o Owners) (until time.Time, budget string, closed bool) {
	for i := range r.closings[namespace] {
		c := &r.closings[namespace][i]
		if now.Sub(c.asOf).Abs() <= budgetBelief && c.until.After(now) && c.until.After(until) && o.InScope(&c.scope) {
			until, budget, closed = c.until, c.name, true
		}
	}
	return until, budget, closed
}

// endOfTime is later than any latest start.
var endOfTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Closes reports whether a budget holds new work according to its status, which most budgets do not.
func Closes(b *v1alpha1.EnergyBudget) bool {
	s := &b.Status
	holds := slices.ContainsFunc(b.Spec.Actions, func(a v1alpha1.BudgetAction) bool {
		return a.Do == v1alpha1.DeedHoldNewWork
	})
	return s.ClosedUntil != nil && s.AsOf != nil && holds && s.ObservedGeneration == b.Generation &&
		b.DeletionTimestamp == nil
}

func closings(budgets []*v1alpha1.EnergyBudget) map[string][]closing {
	all := map[string][]closing{}
	for _, b := range budgets {
		if !Closes(b) {
			continue
		}
		until := timeutil.Earlier(b.Status.ClosedUntil.Time, endOfTime)
		all[b.Namespace] = append(all[b.Namespace], closing{b.Name, b.Spec.Scope, until, b.Status.AsOf.Time})
	}
	return all
}

// GivesAllowance reports whether annotations of Compute Gardener on a namespace define a budget for each workload.
func (n *NamespaceMarks) GivesAllowance() bool {
	return gardenerNamespace(n.Labels) && slices.ContainsFunc(ours(n.Annotations), func(key string) bool {
		return strings.HasPrefix(key, gardener) && strings.HasSuffix(key, "policy-energy-budget-kwh")
	})
}
