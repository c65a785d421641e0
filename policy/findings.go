package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/sched"
)

// A Finding is something that a user wrote and that is not, or not quite, obeyed. Events, kubenergy explain and
// kubenergy doctor show it.
type Finding struct {
	Said string // what stands there, and what comes of it
	Mend string // what to write instead; "": that depends
}

func (f Finding) String() string {
	if f.Mend == "" {
		return f.Said
	}
	return f.Said + ": " + f.Mend
}

// labelsOf are our labels by what they are written on.
var labelsOf = map[string][]string{
	"pods and Jobs": {
		v1alpha1.LabelHeld, v1alpha1.LabelWorkloadType, v1alpha1.LabelWorkloadClass, v1alpha1.LabelTeam,
		v1alpha1.LabelBudgetSuspended, v1alpha1.AnnotationBudgetExceeded,
	},
	"namespaces": {v1alpha1.LabelMode, v1alpha1.LabelTeam},
	"nodes":      {v1alpha1.LabelPowerProfile, v1alpha1.LabelSite},
}

// FindKeys returns a finding for each key of our prefix, or of Compute Gardener's, that has no effect on a pod, a Job or
// a template of pods: those that there are not, labels that are annotations, and the other way round.
func FindKeys(labels map[string]string, annotations ...map[string]string) (all []Finding) {
	for _, key := range ours(annotations...) {
		switch on := holderOf(key); {
		case known[key]:
		case on != "":
			all = append(all, Finding{"annotation " + key + " has no effect", "it is a label, of " + on})
		default:
			all = append(all, unknownKey("annotation", key, slices.Collect(maps.Keys(known))))
		}
	}
	for _, key := range ours(labels) {
		switch on := holderOf(key); {
		case slices.Contains(labelsOf["pods and Jobs"], key), slices.Contains(gardenerLabels, key):
		case on != "":
			all = append(all, Finding{"label " + key + " has no effect", "it is one of " + on})
		case known[key]:
			all = append(all, Finding{"label " + key + " has no effect", "it is an annotation"})
		default:
			names := append(slices.Collect(maps.Keys(known)), labelsOf["pods and Jobs"]...)
			all = append(all, unknownKey("label", key, names))
		}
	}
	return all
}

// gardenerLabels are the labels of Compute Gardener on pods.
var gardenerLabels = []string{gardenerWorkloadType, GardenerBudgetExceeded}

// Mentions reports whether an object, or a Job's template, has a key of ours or of Compute Gardener.
func Mentions(o metav1.Object) bool {
	if job, ok := o.(*batchv1.Job); ok && len(ours(job.Spec.Template.Annotations)) > 0 {
		return true
	}
	return len(ours(o.GetLabels(), o.GetAnnotations())) > 0
}

// ours returns the keys of our prefix and of Compute Gardener's, in order.
func ours(from ...map[string]string) (keys []string) {
	for _, m := range from {
		for key := range m {
			if strings.HasPrefix(key, v1alpha1.Prefix) || strings.HasPrefix(key, gardener) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// holderOf says on what a label of ours is written; "": it is none.
func holderOf(key string) string {
	for _, on := range [...]string{"pods and Jobs", "namespaces", "nodes"} {
		if slices.Contains(labelsOf[on], key) {
			return on
		}
	}
	return ""
}

func unknownKey(what, key string, names []string) Finding {
	return Finding{what + " " + key + " has no effect", "there is none of that name" + sched.DidYouMean(key, names)}
}

// FindNamespace returns what a namespace's labels and annotations say to us in vain.
func FindNamespace(o metav1.Object) (all []Finding) {
	labels := o.GetLabels()
	if mode := labels[v1alpha1.LabelMode]; mode != "" && ModeOf(labels) == "" {
		var names []string
		for _, m := range modes {
			names = append(names, string(m))
		}
		all = append(all, Finding{
			fmt.Sprintf("label %s is %s, which is no mode", v1alpha1.LabelMode, excerpt(mode)),
			"want one of " + strings.Join(names, ", ") + sched.DidYouMean(mode, names),
		})
	}
	names := append(slices.Clone(labelsOf["namespaces"]), gardenerPolicies)
	for _, key := range ours(labels) {
		if !slices.Contains(names, key) {
			all = append(all, unknownKey("label", key, names))
		}
	}
	for _, key := range ours(o.GetAnnotations()) {
		f := Finding{"annotation " + key + " of a namespace has no effect", "an EnergyPolicy says what holds in it"}
		_, name, policies := gardenerKey(key)
		switch {
		case slices.Contains(names, key):
			f.Mend = "it is a label"
		case policies && !gardenerNamespace(labels):
			f.Mend = "also label the namespace " + gardenerPolicies + "=enabled"
		case policies && known[gardener+name]:
			continue
		case policies:
			f.Mend = unknownKey("", gardener+name, slices.Collect(maps.Keys(known))).Mend
		}
		all = append(all, f)
	}
	return all
}

// Find returns what the marks of a workload say in vain under these rules. now is when it is looked at.
func (r *Rules) Find(now time.Time, w *Work) []Finding {
	job, s := r.Settle(w)
	return append(r.findDelay(now, w, &job, &s), r.findRule(w, &s)...)
}

// findDelay tells of delays and finishes that do not count.
func (r *Rules) findDelay(now time.Time, w *Work, job *sched.Job, s *Settings) (all []Finding) {
	m := &w.Marks
	if m.said&termDelay != 0 && s.MaxDelay > 0 && m.AllowedDelay > s.MaxDelay {
		all = append(all, Finding{Said: fmt.Sprintf("%s is %v: no more than %v is allowed here (maxDelay)",
			v1alpha1.AnnotationAllowedDelay, m.AllowedDelay, s.MaxDelay)})
	}
	if m.said&termDelay != 0 && m.AllowedDelay > 0 && r.of(w.Namespace).never {
		all = append(all, Finding{Said: v1alpha1.AnnotationAllowedDelay +
			" has no effect: nothing is held here, since maxDelay is 0"})
	}
	switch why := NoTime(now, job); {
	case m.FinishBy.IsZero():
	case why != "":
		all = append(all, Finding{Said: why})
	case s.AllowedDelay <= 0:
		all = append(all, Finding{
			v1alpha1.AnnotationFinishBy + " alone holds nothing", "also say " + v1alpha1.AnnotationAllowedDelay,
		})
	}
	return all
}

// findRule tells of strategies and thresholds that do nothing where they stand.
func (r *Rules) findRule(w *Work, s *Settings) (all []Finding) {
	m := &w.Marks
	if strategy := strategies()[s.Strategy()]; strategy != nil && strategy.Interrupts() && m.said&termRule != 0 {
		all = append(all, Finding{Said: "strategy " + s.Strategy() +
			" suspends what runs in simulations alone: here it starts once, and runs to its end"})
	}
	limits := m.said & (termCarbon | termPercentile | termPrice)
	if limits != 0 && s.When != "threshold" {
		all = append(all, Finding{
			"thresholds have no effect with the strategy " + s.Strategy(), "leave the + away, or say +threshold",
		})
	}
	if m.said&(termPrice|termCarbonCounts) != 0 && (m.Limits.HasPrice || m.Limits.NoCarbon) && !r.priced() {
		all = append(all, Finding{
			"no grid zone has prices: a price threshold, and price alone, hold nothing", "give a GridZone prices",
		})
	}
	return all
}

// NoTime says why the deadline of a job's finish leaves it no time to wait; "": it leaves some, or there is none.
func NoTime(now time.Time, job *sched.Job) string {
	text := v1alpha1.AnnotationFinishBy + " " + job.FinishBy.UTC().Format(time.RFC3339)
	switch {
	case job.FinishBy.IsZero() || job.FinishBy.Add(-job.Duration).After(now):
		return ""
	case !job.FinishBy.After(now):
		return text + " is past: started at once"
	}
	return fmt.Sprintf("%s leaves no time to wait: started at once, since it runs for %v", text, job.Duration)
}

// FindOwner returns a finding if a workload asks to wait and is never held, because its owner decides when it runs.
func FindOwner(o metav1.Object, w *Work) []Finding {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind == "Job" || !w.mayWait() { // what stands on the pods of a Job was read with the Job
		return nil
	}
	why, never := NeverHeld(o)
	if !never {
		return nil
	}
	return []Finding{{"its annotations ask to wait, and it is never held", why}}
}

// FindPolicy returns a finding for each allowed delay of a namespace's policy that is cut.
func (r *Rules) FindPolicy(namespace string) (all []Finding) {
	p, most := r.policies[namespace], r.of(namespace).maxDelay
	if p == nil {
		return nil
	}
	check := func(field string, d *metav1.Duration) {
		if d != nil && most > 0 && d.Duration > most {
			all = append(all, Finding{
				fmt.Sprintf("%s is %v: it is cut to %v", field, d.Duration, most),
				"set maxDelay, for the namespace or the cluster",
			})
		}
	}
	check("allowedDelay", p.Spec.AllowedDelay)
	for _, t := range slices.Sorted(maps.Keys(p.Spec.WorkloadTypes)) {
		check("workloadTypes."+t+".allowedDelay", p.Spec.WorkloadTypes[t].AllowedDelay)
	}
	return all
}

// priced reports whether any site has prices.
func (r *Rules) priced() bool {
	return slices.ContainsFunc(r.sites, func(site *sched.Site) bool { return site.Price.Series != nil })
}
