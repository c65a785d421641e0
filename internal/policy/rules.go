package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// strategies returns all strategies by their full names.
var strategies = sync.OnceValue(func() map[string]*strategy.Greedy {
	wheres, whens := strategy.Names()
	all := make(map[string]*strategy.Greedy, len(wheres)*len(whens))
	for _, where := range wheres {
		for _, when := range whens {
			name := where + "+" + when
			if strategy, err := strategy.New(name); err == nil {
				all[name] = strategy
			}
		}
	}
	return all
})

// NamespaceMarks contains the labels and annotations of a namespace.
type NamespaceMarks struct {
	Name                string
	Labels, Annotations map[string]string
}

// Rules determines which workloads of a cluster may wait, and the reasons to wait. Rules is immutable. The zero
// value contains the built-in rules.
type Rules struct {
	policies   map[string]*v1alpha1.EnergyPolicy // effective policies by namespace
	namespaces map[string]*namespaceRules        // of namespaces with settings
	elsewhere  *namespaceRules                   // of all other namespaces
	closings   map[string][]closing              // by namespace; budgets that hold new work
	sites      []*sched.Site                     // sites with signals that affect holds
	classes    map[string]bool                   // benchmark classes
	teams      map[string]string                 // teams by namespace, from namespace labels
	claimed    map[string]bool                   // teams in the label of any namespace
	runTimes   map[string]*RunTimes              // by namespace
}

// Sources contains the inputs of Rules.
type Sources struct {
	Defaults   Defaults
	Policies   []*v1alpha1.EnergyPolicy // may contain other names and invalid policies, which are ignored
	Namespaces []NamespaceMarks
	Budgets    []*v1alpha1.EnergyBudget // used-up budgets prevent new work from starting
	Sites      []*sched.Site            // sites with signals that affect holds
	Classes    map[string]bool          // benchmark classes
	RunTimes   map[string]*RunTimes     // by namespace
}

// Rules computes the rules.
func (c *Sources) Rules() Rules {
	book := &ruleBook{defaults: c.Defaults, policies: map[string]*v1alpha1.EnergyPolicy{}}
	for _, p := range c.Policies {
		if p.Name == v1alpha1.PolicyName && ReadPolicy(p) == nil {
			book.policies[p.Namespace] = p
		}
	}
	r := Rules{
		policies: book.policies, elsewhere: book.of("", nil, nil),
		namespaces: make(map[string]*namespaceRules, len(c.Namespaces)+len(book.policies)),
		closings:   closings(c.Budgets), sites: c.Sites, classes: c.Classes, runTimes: c.RunTimes,
		teams: map[string]string{}, claimed: map[string]bool{},
	}
	// Namespaces with the same settings share their rules, because most of ten thousand opted-in namespaces only
	// have the label.
	type words struct {
		marks  string // formatted labels and annotations of the namespace
		policy *v1alpha1.EnergyPolicy
	}
	shared := map[words]*namespaceRules{}
	for i := range c.Namespaces {
		n, ok := c.Namespaces[i].ours()
		if team := n.Labels[v1alpha1.LabelTeam]; team != "" {
			r.teams[n.Name], r.claimed[team] = team, true
			delete(n.Labels, v1alpha1.LabelTeam) // not part of the rules
			ok = len(n.Labels) > 0
		}
		if !ok {
			continue
		}
		// maps are printed with sorted keys
		said := words{fmt.Sprintf("%q %q", n.Labels, n.Annotations), book.policies[n.Name]}
		if shared[said] == nil {
			// ignore invalid annotations; conditions of the policy report them
			own, _ := ReadNamespace(&n)
			shared[said] = book.of(n.Name, &n, own)
		}
		r.namespaces[n.Name] = shared[said]
	}
	for namespace := range book.policies {
		if r.namespaces[namespace] == nil {
			r.namespaces[namespace] = book.of(namespace, nil, nil)
		}
	}
	return r
}

// of returns the rules of a namespace, or those of the cluster if the namespace has no settings.
func (r *Rules) of(namespace string) *namespaceRules {
	if rules, ok := r.namespaces[namespace]; ok {
		return rules
	}
	return cmp.Or(r.elsewhere, builtIn())
}

// TeamOf returns the team that is charged for a workload. own is the team in the labels of the pod, see the
// function [TeamOf]. Users set the labels of pods, while administrators set those of namespaces. Therefore the
// label kubenergy.io/team of a namespace takes precedence, and no other namespace can charge that team.
func (r *Rules) TeamOf(namespace, own string) string {
	if team := r.teams[namespace]; team != "" {
		return team
	}
	if r.claimed[own] {
		return ""
	}
	return own
}

// Policies returns the effective EnergyPolicies by namespace. The map must not be modified.
func (r *Rules) Policies() map[string]*v1alpha1.EnergyPolicy { return r.policies }

// Mode returns the mode of a namespace, and whether the namespace has opted in.
func (r *Rules) Mode(namespace string) (mode v1alpha1.Mode, optedIn bool) {
	rules := r.of(namespace)
	return rules.mode, rules.optedIn
}

// Delays reports whether a Job without annotations may wait in a namespace.
func (r *Rules) Delays(namespace string) bool {
	rules := r.of(namespace)
	s := rules.settings(typeBatch, "")
	s.limitDelay(rules, true)
	return rules.optedIn && s.AllowedDelay > 0
}

// Concerns reports whether a pod may be handled by KubEnergy, because it is marked, its namespace has opted in, or
// its scheduler name implies it. It only requires a few map lookups.
func (r *Rules) Concerns(pod *v1.Pod) bool {
	if rules, ok := r.namespaces[pod.Namespace]; ok && rules.optedIn {
		return true
	}
	return pod.Spec.SchedulerName == GardenerSchedulerName || pod.Spec.SchedulerName == HybridSchedulerName ||
		marked(pod)
}

// MarksOfNamespace returns the relevant labels and annotations of a namespace. ok is false if there are none.
func MarksOfNamespace(n *v1.Namespace) (marks NamespaceMarks, ok bool) {
	return (&NamespaceMarks{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations}).ours()
}

// ours returns a copy of n without irrelevant labels and annotations.
func (n *NamespaceMarks) ours() (marks NamespaceMarks, ok bool) {
	marks = NamespaceMarks{Name: n.Name, Labels: map[string]string{}}
	for _, key := range [...]string{v1alpha1.LabelMode, v1alpha1.LabelTeam} {
		if value := n.Labels[key]; value != "" {
			marks.Labels[key] = value
		}
	}
	if gardenerNamespace(n.Labels) {
		marks.Labels[gardenerPolicies] = n.Labels[gardenerPolicies]
		marks.Annotations = maps.Clone(n.Annotations)
		maps.DeleteFunc(marks.Annotations, func(key, _ string) bool { return !strings.HasPrefix(key, gardener) })
		return marks, true
	}
	return marks, ModeOf(n.Labels) != "" || marks.Labels[v1alpha1.LabelTeam] != ""
}

// namespaceRules contains the rules of a namespace.
type namespaceRules struct {
	mode     v1alpha1.Mode
	modeFrom string
	optedIn  bool
	maxDelay time.Duration // 0 means no limit
	maxFrom  string
	never    bool // the maximum is 0, so no work is held

	base Settings // built-in settings
	// Layers by workload type in ascending precedence. The layers of the cluster come first, followed by that of
	// the scheduler name and those of the namespace.
	cluster, own map[string][]layer
	schedulers   map[string]layer
	// ready contains the effective settings by workload type and scheduler name.
	ready map[[2]string]Settings
}

// layer contains the settings of one level.
type layer struct {
	from string
	Terms
}

// settings returns the settings for a workload type and a scheduler name without those of the workload itself.
func (r *namespaceRules) settings(workloadType, scheduler string) Settings {
	if s, ok := r.ready[[2]string{workloadType, scheduler}]; ok {
		return s
	}
	return r.ready[[2]string{workloadType}]
}

func (r *namespaceRules) layers(workloadType, scheduler string) []layer {
	layers := slices.Clone(r.cluster[workloadType])
	if l, known := r.schedulers[scheduler]; known {
		layers = append(layers, l)
	}
	return append(layers, r.own[workloadType]...)
}

// resolve computes the effective settings in advance, because schedulers need them frequently.
func (r *namespaceRules) resolve() {
	r.ready = map[[2]string]Settings{}
	for _, t := range workloadTypes {
		for _, scheduler := range append(slices.Collect(maps.Keys(r.schedulers)), "") {
			s := r.base
			s.MaxDelay = r.maxDelay
			for _, l := range r.layers(t, scheduler) {
				s.apply(&l.Terms)
			}
			r.ready[[2]string{t, scheduler}] = s
		}
	}
}

// ReadPolicy validates an EnergyPolicy beyond its schema.
func ReadPolicy(p *v1alpha1.EnergyPolicy) error {
	var errs []error
	check := func(field string, d *metav1.Duration) {
		if d != nil && (d.Duration < 0 || d.Duration > longest) {
			errs = append(errs, fmt.Errorf("%s is %v: want 0 to %v", field, d.Duration, longest))
		}
	}
	check("maxDelay", p.Spec.MaxDelay)
	check("allowedDelay", p.Spec.AllowedDelay)
	check("expectedDuration", p.Spec.ExpectedDuration)
	for _, t := range slices.Sorted(maps.Keys(p.Spec.WorkloadTypes)) {
		settings := p.Spec.WorkloadTypes[t]
		if !slices.Contains(workloadTypes, t) {
			errs = append(errs, fmt.Errorf("workload type %q: want one of %s", t, strings.Join(workloadTypes, ", ")))
		}
		check("workloadTypes."+t+".allowedDelay", settings.AllowedDelay)
		check("workloadTypes."+t+".expectedDuration", settings.ExpectedDuration)
	}
	if p.Spec.Mode != "" && !slices.Contains(modes, p.Spec.Mode) {
		errs = append(errs, fmt.Errorf("mode is %q: want off, shadow, advise or enforce", p.Spec.Mode))
	}
	return errors.Join(errs...)
}

// ReadNamespace returns the policies of Compute Gardener in the annotations of a namespace by workload type. The
// type "" means all types.
func ReadNamespace(n *NamespaceMarks) (map[string]Terms, error) {
	if !gardenerNamespace(n.Labels) {
		return nil, nil
	}
	byType := map[string]Terms{}
	var errs []error
	for t, annotations := range gardenerKeys(n.Annotations) {
		if t != "" && !slices.Contains(workloadTypes, t) {
			errs = append(errs, fmt.Errorf("annotations %s%s%s…: unknown workload type %q", gardenerWorkload, t,
				gardenerWorkloadPolicy, t))
			continue
		}
		good := map[string]string{} // an invalid value must not disable the others
		for key, value := range annotations {
			if _, err := ReadMarks(map[string]string{key: value}); err != nil {
				errs = append(errs, err)
			} else {
				good[key] = value
			}
		}
		marks, err := ReadMarks(good)
		byType[t], errs = marks.Terms, append(errs, err)
	}
	return byType, errors.Join(errs...)
}

var modes = []v1alpha1.Mode{v1alpha1.ModeOff, v1alpha1.ModeShadow, v1alpha1.ModeAdvise, v1alpha1.ModeEnforce}

// Slurm is the scheduler name of Slurm's jobs.
const Slurm = "slurm"

// EnforceCommand returns a command, or for a Slurm account a setting, that changes the mode of a namespace to enforce.
func EnforceCommand(namespace, scheduler string) string {
	if scheduler == Slurm {
		return "set mode: enforce in the EnergyPolicy of the account"
	}
	return "kubectl label namespace " + namespace + " " + v1alpha1.LabelMode + "=enforce --overwrite"
}

// ModeOf returns the mode in the label of a namespace, or "" if there is none or it is invalid.
func ModeOf(labels map[string]string) v1alpha1.Mode {
	if m := v1alpha1.Mode(labels[v1alpha1.LabelMode]); slices.Contains(modes, m) {
		return m
	}
	return ""
}

// ruleBook computes the rules of all namespaces.
type ruleBook struct {
	defaults Defaults
	policies map[string]*v1alpha1.EnergyPolicy // valid policies by namespace
}

// builtIn returns the rules of every namespace in the zero Rules.
var builtIn = sync.OnceValue(func() *namespaceRules { return new(ruleBook).of("", nil, nil) })

// of returns the rules of a namespace, which are those of the cluster with the settings of the namespace.
func (b *ruleBook) of(namespace string, marks *NamespaceMarks, annotated map[string]Terms) *namespaceRules {
	r := &namespaceRules{
		mode: cmp.Or(b.defaults.Mode, v1alpha1.ModeEnforce), modeFrom: "built in",
		base: b.defaults.settings(), maxDelay: b.defaults.MaxDelay, maxFrom: "built in",
		schedulers: map[string]layer{},
	}
	for name, terms := range b.defaults.Schedulers {
		r.schedulers[name] = layer{"scheduler " + name, terms}
	}
	cluster, own := b.policies[v1alpha1.SystemNamespace], b.policies[namespace]
	if cluster != nil {
		r.setMode(cluster.Spec.Mode, "cluster")
		if limit := cluster.Spec.MaxDelay; limit != nil {
			// replaces the built-in maximum
			r.maxDelay, r.never, r.maxFrom = limit.Duration, limit.Duration <= 0, "cluster"
		}
	}
	if namespace == v1alpha1.SystemNamespace {
		own = nil
	}
	if own != nil {
		r.optedIn = true
		r.setMode(own.Spec.Mode, "namespace")
		r.clamp(own.Spec.MaxDelay, "namespace")
	}
	if marks != nil {
		r.optedIn = r.optedIn || gardenerNamespace(marks.Labels)
		if mode := ModeOf(marks.Labels); mode != "" {
			r.optedIn = true
			r.setMode(mode, "namespace label")
		}
	}
	r.cluster, r.own = layersOf(cluster, "cluster", nil), layersOf(own, "namespace", annotated)
	r.resolve()
	return r
}

func (r *namespaceRules) setMode(mode v1alpha1.Mode, from string) {
	if mode != "" {
		r.mode, r.modeFrom = mode, from
	}
}

func (r *namespaceRules) clamp(limit *metav1.Duration, from string) {
	if limit == nil {
		return
	}
	if r.never = r.never || limit.Duration <= 0; r.maxDelay == 0 || limit.Duration < r.maxDelay {
		r.maxDelay, r.maxFrom = limit.Duration, from
	}
}

// layersOf returns the layers of a policy and annotations by workload type. Settings for all types come first.
func layersOf(p *v1alpha1.EnergyPolicy, from string, annotated map[string]Terms) map[string][]layer {
	all := map[string][]layer{}
	if p == nil {
		p = &v1alpha1.EnergyPolicy{} // has no settings
	}
	for _, t := range workloadTypes {
		settings := p.Spec.WorkloadTypes[t]
		all[t] = slices.DeleteFunc([]layer{
			{from + " annotation", annotated[""]},
			{from, termsOf(&p.Spec.WorkloadSettings)},
			{from + " annotation, workload type " + t, annotated[t]},
			{from + ", workload type " + t, termsOf(&settings)},
		}, func(l layer) bool { return l.said == 0 })
	}
	return all
}
