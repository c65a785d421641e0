package policy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/spelling"
)

// A Finding is a setting of a user that has no effect, or not the intended one. Findings are reported in events, by
// kubenergy explain and by kubenergy doctor.
type Finding struct {
	Said string // the setting and its consequence
	Mend string // how to fix it; empty if unknown

	Reduced bool // the setting has an effect, but a smaller one
}

func (f Finding) String() string {
	if f.Mend == "" {
		return f.Said
	}
	return f.Said + ": " + f.Mend
}

// addIf adds a finding if a setting is wrong.
func addIf(all []Finding, wrong bool, said, mend string) []Finding {
	if wrong {
		all = append(all, Finding{Said: said, Mend: mend})
	}
	return all
}

// Kinds of objects that have KubEnergy labels and annotations.
const (
	onWork       = "pods and Jobs"
	onNamespaces = "namespaces"
	onNodes      = "nodes"
)

// labelsOf contains the labels of KubEnergy and Compute Gardener by the kind of objects.
var labelsOf = map[string][]string{
	onWork: {
		v1alpha1.LabelHeld, v1alpha1.LabelWorkloadType, v1alpha1.LabelWorkloadClass, v1alpha1.LabelTeam,
		v1alpha1.LabelInterruptible, v1alpha1.LabelBudgetSuspended, v1alpha1.AnnotationBudgetExceeded,
		gardenerWorkloadType, GardenerBudgetExceeded,
		v1alpha1.LabelExperiment, v1alpha1.LabelExperimentLoad, v1alpha1.LabelExperimentApp,
	},
	onNamespaces: {v1alpha1.LabelMode, v1alpha1.LabelTeam, gardenerPolicies},
	onNodes:      {v1alpha1.LabelPowerProfile, v1alpha1.LabelSite},
}

// Mistyped is a regular expression that matches keys with a misspelled prefix of KubEnergy, and keys of any other
// prefix with the name of a common annotation of KubEnergy. It also matches the correct keys.
const Mistyped = `^([a-z0-9-]+[.])*kub[a-z-]*(n[a-z]{0,3}g[a-z]?(y|ie)|nery)([.][a-z.-]*)?/|` +
	`(^|/)(allowed-delay|finish-by|expected-duration|carbon-threshold|carbon-percentile|price-threshold)$`

var mistyped = regexp.MustCompile(Mistyped)

// WorkKeys returns the annotations and labels that have an effect on pods, Jobs and pod templates, including those of
// other systems.
func WorkKeys() (annotations, labels []string) {
	return slices.Sorted(maps.Keys(known)), slices.Sorted(slices.Values(labelsOf[onWork]))
}

// FindKeys returns a finding for each key with the prefix of KubEnergy or Compute Gardener that has no effect on a
// pod, a Job or a pod template. Such keys are unknown, or are annotations used as labels or vice versa.
func FindKeys(labels map[string]string, annotations ...map[string]string) (all []Finding) {
	for _, key := range ours(annotations...) {
		all = append(all, findKey("annotation", key, onWork)...)
	}
	for _, key := range ours(labels) {
		all = append(all, findKey("label", key, onWork)...)
	}
	value, said := labels[v1alpha1.LabelInterruptible]
	return addIf(all, said && value != "true" && value != "false",
		fmt.Sprintf("label %s is %s and has no effect", v1alpha1.LabelInterruptible, excerpt(value)),
		"want true or false")
}

// propagated reports whether an object has a label or annotation of Karmada, which sets them on the objects that it
// propagates and on their copies in member clusters.
func propagated(marks ...map[string]string) bool {
	return slices.ContainsFunc(marks, func(m map[string]string) bool {
		for key := range m {
			domain, _, _ := strings.Cut(key, "/")
			if domain == "karmada.io" || strings.HasSuffix(domain, ".karmada.io") {
				return true
			}
		}
		return false
	})
}

// FindAbove returns a finding for each key on an object, such as a CronJob, that only has an effect on the template
// in the object. Keys that are also on the template are not reported. path is the field path of the template's
// metadata.
func FindAbove(kind, path string, o, template metav1.Object) (all []Finding) {
	find := func(what string, on, below map[string]string) {
		for _, key := range ours(on) {
			if _, both := below[key]; both {
				continue
			}
			f := Finding{Said: what + " " + key + " of a " + kind + " has no effect", Mend: "set it in " + path}
			if found := findKey(what, key, onWork); len(found) > 0 {
				f.Mend = found[0].Mend
			}
			all = append(all, f)
		}
	}
	find("annotation", o.GetAnnotations(), template.GetAnnotations())
	find("label", o.GetLabels(), template.GetLabels())
	return all
}

// FindCronJob returns a finding for each key on a CronJob that only has an effect on its template.
func FindCronJob(c *batchv1.CronJob) []Finding {
	return FindAbove("CronJob", "spec.jobTemplate.metadata", c, &c.Spec.JobTemplate)
}

// findKey returns a finding if a key has no effect on the given kind of objects. The parameter what must be "label"
// or "annotation".
func findKey(what, key, on string) []Finding {
	holder, said := holderOf(key, on), what+" "+key
	if on == onNamespaces {
		said += " of a namespace"
	}
	mend := "unknown key" + spelling.DidYouMean(key, allKeys())
	switch {
	case !strings.HasPrefix(key, v1alpha1.Prefix) && !strings.HasPrefix(key, gardener) && mistyped.MatchString(key):
		mend = "the keys of KubEnergy have the prefix " + v1alpha1.Prefix
	case what == "label" && holder == on, what == "annotation" && known[key] && on == onWork:
		return nil
	case holder != "":
		mend = "it is a label of " + holder
	case known[key] && on == onNamespaces:
		mend = "it is an annotation of " + onWork + "; use an EnergyPolicy for a namespace"
	case known[key]:
		mend = "it is an annotation"
	}
	return []Finding{{Said: said + " has no effect", Mend: mend}}
}

// allKeys returns all keys that have an effect on any kind of objects.
func allKeys() []string {
	return slices.Concat(slices.Collect(maps.Keys(known)), labelsOf[onWork], labelsOf[onNamespaces], labelsOf[onNodes])
}

// Mentions reports whether an object, or the pod template of a Job, has a key of KubEnergy or Compute Gardener.
func Mentions(o metav1.Object) bool {
	if job, ok := o.(*batchv1.Job); ok && len(ours(job.Spec.Template.Annotations)) > 0 {
		return true
	}
	return len(ours(o.GetLabels(), o.GetAnnotations())) > 0
}

// ours returns the sorted keys with the prefix of KubEnergy, a misspelled one, or the prefix of Compute Gardener.
func ours(from ...map[string]string) (keys []string) {
	for _, m := range from {
		for key := range m {
			if strings.HasPrefix(key, v1alpha1.Prefix) || strings.HasPrefix(key, gardener) ||
				mistyped.MatchString(key) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// holderOf returns the kind of objects on which a label has an effect, preferring the given kind. It returns "" for
// an unknown label.
func holderOf(key, on string) string {
	for _, on := range [...]string{on, onWork, onNamespaces, onNodes} {
		if slices.Contains(labelsOf[on], key) {
			return on
		}
	}
	return ""
}

// FindNamespace returns findings for the labels and annotations of a namespace.
func FindNamespace(o metav1.Object) (all []Finding) {
	labels := o.GetLabels()
	if mode := labels[v1alpha1.LabelMode]; mode != "" && ModeOf(labels) == "" {
		names := sliceutil.Map(modes, func(m v1alpha1.Mode) string { return string(m) })
		all = append(all, Finding{
			Said: fmt.Sprintf("label %s is %s, which is not a mode", v1alpha1.LabelMode, excerpt(mode)),
			Mend: "want one of " + strings.Join(names, ", ") + spelling.DidYouMean(mode, names),
		})
	}
	for _, key := range ours(labels) {
		all = append(all, findKey("label", key, onNamespaces)...)
	}
	for _, key := range ours(o.GetAnnotations()) {
		found := findKey("annotation", key, onNamespaces)
		if _, name, ok := gardenerKey(key); ok && gardenerNamespace(labels) {
			if as := findKey("annotation", gardener+name, onWork); len(as) > 0 {
				found[0].Mend = as[0].Mend
			} else {
				found = nil
			}
		} else if ok {
			found[0].Mend = "also label the namespace " + gardenerPolicies + "=enabled"
		}
		all = append(all, found...)
	}
	return all
}

// Find returns findings for the annotations of a workload under the rules at the given time.
func (r *Rules) Find(now time.Time, w *Work) []Finding {
	job, s := r.Settle(w)
	return append(r.findDelay(now, w, &job, &s), r.findRule(w, &s)...)
}

// findDelay returns findings for delays and completion times.
func (r *Rules) findDelay(now time.Time, w *Work, job *sched.Job, s *Settings) (all []Finding) {
	m := &w.Marks
	delays, finishes := m.said&termDelay != 0, !m.FinishBy.IsZero()
	if delays && s.MaxDelay > 0 && m.AllowedDelay > s.MaxDelay {
		all = append(all, Finding{Reduced: true, Said: fmt.Sprintf("%s is %v, but at most %v is allowed (maxDelay)",
			v1alpha1.AnnotationAllowedDelay, m.AllowedDelay, s.MaxDelay)})
	}
	all = addIf(all, delays && m.AllowedDelay > 0 && r.of(w.Namespace).never,
		v1alpha1.AnnotationAllowedDelay+" has no effect, because no work is held while maxDelay is 0", "")
	why := NoTime(now, job)
	all = addIf(all, finishes && why != "", why, "")
	return addIf(all, finishes && why == "" && s.AllowedDelay <= 0,
		v1alpha1.AnnotationFinishBy+" requires an allowed delay", "also set "+v1alpha1.AnnotationAllowedDelay)
}

// findRule returns findings for strategies and thresholds.
func (r *Rules) findRule(w *Work, s *Settings) (all []Finding) {
	m := &w.Marks
	rule := sched.StartRules[s.When]
	onlyJobs := "only Jobs with the label " + v1alpha1.LabelInterruptible + `: "true" are paused`
	switch {
	case w.Interruptible && w.pod:
		all = addIf(all, true, "label "+v1alpha1.LabelInterruptible+" has no effect on a pod", onlyJobs)
	case w.Interruptible:
		all = addIf(all, !pausing(&rule), "label "+v1alpha1.LabelInterruptible+" has no effect with the strategy "+
			s.Strategy(), "use a start rule that pauses Jobs, e.g. carbon+residual")
	default:
		all = addIf(all, pausing(&rule) && m.said&termRule != 0, "strategy "+s.Strategy()+" does not pause this work",
			onlyJobs)
		all = addIf(all, m.RestartCost > 0 || m.Checkpoints > 0 || m.MaxPauses > 0,
			"restart-cost, checkpoint-interval and max-pauses have no effect", onlyJobs)
	}
	all = append(all, findScaling(w, s, &rule)...)
	all = addIf(all, m.Order != "" && m.Order != "fifo" && m.Order != sched.Aging,
		"the order /"+m.Order+" in "+v1alpha1.AnnotationStrategy+" has no effect outside of simulations",
		"use /"+sched.Aging+", or a PriorityClass to start pods before others")
	all = addIf(all, m.HasPerformance && !WeighsPerformance(s.Strategy()),
		v1alpha1.AnnotationPerformanceWeight+" has no effect with the strategy "+s.Strategy(),
		"use the strategy hybrid, hybrid-idle or profile")
	all = addIf(all, m.said&(termCarbon|termPercentile|termPrice) != 0 && s.When != "threshold",
		"thresholds have no effect with the strategy "+s.Strategy(), "omit the + and the rule, or use +threshold")
	return addIf(all,
		m.said&(termPrice|termCarbonCounts) != 0 && (m.Limits.HasPrice || m.Limits.NoCarbon) && !r.priced(),
		"no grid zone has prices, so no work is held because of prices", "configure prices in a GridZone")
}

// findScaling returns a finding if the range of replicas has no effect.
func findScaling(w *Work, s *Settings, rule *sched.StartRule) (all []Finding) {
	const said = v1alpha1.AnnotationReplicas + " has no effect"
	switch r := &w.Marks.Replicas; {
	case r.Most == 0:
		return addIf(all, r.Speedup != "", v1alpha1.AnnotationSpeedup+" has no effect", "also set "+
			v1alpha1.AnnotationReplicas)
	case !w.Interruptible || w.pod:
		return addIf(all, true, said, "set the label "+v1alpha1.LabelInterruptible+`: "true" on the Job`)
	case w.unscalable != "":
		return addIf(all, true, said+": "+w.unscalable, "")
	}
	all = addIf(all, rule.Scale == nil, said+" with the strategy "+s.Strategy(), "use carbon+carbon-scaler")
	return addIf(all, rule.Scale != nil && !w.StatesDuration(), fmt.Sprintf(
		"the run time of a Job with %s is not learnt, so %v is assumed", v1alpha1.AnnotationReplicas, s.Duration()),
		"set "+v1alpha1.AnnotationExpectedDuration+" to the run time with the minimum number of pods")
}

// WeighsPerformance reports whether a strategy uses the annotation performance-weight.
func WeighsPerformance(strategy string) bool {
	where, _, _ := strings.Cut(strategy, "+")
	return where == "profile" || strings.HasPrefix(where, "hybrid")
}

// NoTime returns the reason why the requested completion time of a job leaves no time to wait. It returns "" if
// there is time, or no such request.
func NoTime(now time.Time, job *sched.Job) string {
	text := v1alpha1.AnnotationFinishBy + " " + job.FinishBy.UTC().Format(time.RFC3339)
	switch {
	case job.FinishBy.IsZero() || job.FinishBy.Add(-job.Duration).After(now):
		return ""
	case !job.FinishBy.After(now):
		return text + " has passed, so the job starts immediately"
	}
	return fmt.Sprintf("%s leaves no time to wait, because the job runs for %v", text, job.Duration)
}

// FindOwner returns a finding if a workload has annotations for waiting, but is never held because its owner or
// another system controls when it runs.
func FindOwner(o metav1.Object, w *Work) []Finding {
	owner := metav1.GetControllerOfNoCopy(o)
	// annotations of a Job's pods are read together with the Job
	if !w.mayWait() || owner != nil && owner.Kind == "Job" {
		return nil
	}
	why, never := startedByOthers(o)
	if owner != nil && !never {
		why, never = NeverHeld(o)
	}
	return addIf(nil, never, "the annotations request a hold, but the object is never held", why)
}

// FindGPUs returns a finding if a pod requests devices that estimates and scores of nodes leave out.
func FindGPUs(pod *v1.Pod) []Finding {
	from := UnknownGPUs(pod)
	return addIf(nil, from != "", "the GPUs of "+from+" are unknown",
		"estimates and scores of nodes do not include their power")
}

// FindPolicy returns a finding for each allowed delay in the policy of a namespace that exceeds the maximum.
func (r *Rules) FindPolicy(namespace string) (all []Finding) {
	p, most := r.policies[namespace], r.of(namespace).maxDelay
	if p == nil {
		return nil
	}
	check := func(field string, d *metav1.Duration) {
		if d != nil {
			all = addIf(all, most > 0 && d.Duration > most,
				fmt.Sprintf("%s is %v, which is reduced to %v", field, d.Duration, most),
				"increase maxDelay of the namespace or the cluster")
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
