package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Settings contains the effective settings of a workload, which are determined by its annotations, its type, its
// namespace and the cluster, in this order of precedence.
type Settings struct {
	Terms

	Mode v1alpha1.Mode
	Ours bool // marked, in an opted-in namespace, or with a scheduler name that implies it

	MaxDelay     time.Duration // 0 means no limit
	MaxSignalAge time.Duration

	namespace string
	owners    Owners // charged owners, which determine the budgets that apply
}

// Enforced reports whether decisions on the workload are carried out.
func (s *Settings) Enforced() bool { return s.Ours && s.Mode == v1alpha1.ModeEnforce }

// Strategy returns the full name of the strategy.
func (s *Settings) Strategy() string { return cmp.Or(s.Where, "carbon") + "+" + s.When }

// Duration returns the expected duration of the workload.
func (s *Settings) Duration() time.Duration { return cmp.Or(max(s.ExpectedDuration, 0), time.Hour) }

// Policy converts the settings to a policy of the core.
func (s *Settings) Policy() sched.Policy {
	return sched.Policy{
		Weights: s.Weights, MaxDelay: s.MaxDelay, MaxSignalAge: s.MaxSignalAge,
		MinSaving: s.MinSaving, MinSavingPerHour: s.MinSavingPerHour, MinSavingGrams: s.MinSavingGrams,
	}
}

// Defaults contains settings that apply if no object sets them.
type Defaults struct {
	// Terms are the default terms. If AllowedDelay is 0, no work is held unless it requests a delay itself.
	// ExpectedDuration defaults to an hour, and When to guarded.
	Terms

	Mode         v1alpha1.Mode // defaults to enforce
	MaxDelay     time.Duration // max of every allowed delay, including the default; 0 means no limit
	MaxSignalAge time.Duration // 0 means any age
	// Schedulers contains terms by scheduler name. Their precedence is between those of the cluster and those of a
	// namespace.
	Schedulers map[string]Terms
	NodePower  map[string]*energy.Profile // by node name; "" applies to nodes of unknown hardware
	AnyPower   *energy.Profile            // of nodes of unknown hardware, for accounting only; nil in the scheduler
	Hardware   *hardware.Catalog          // nil means the built-in catalog
}

// UnknownHardware is the name of the profile for nodes of unknown hardware.
const UnknownHardware = "unknown-hardware"

// BuiltIn returns the settings of a cluster without configuration.
func BuiltIn() Defaults {
	return Defaults{
		Mode: v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour,
		// Providers publish signals every 5 to 60 minutes, so two updates may fail before a signal becomes stale.
		MaxSignalAge: 2 * time.Hour,
		// Compared to a minimum saving of 0.01 alone, the minimum saving per hour retains nine tenths of the
		// savings with two thirds of the waiting time, see docs/decisions/0027-held-only-if-waiting-saves-enough.md.
		Terms:      Terms{When: defaultWhen, MinSaving: 0.01, MinSavingPerHour: 0.005},
		Schedulers: aliasSchedulers(),
	}
}

const defaultWhen = "guarded"

func (d *Defaults) settings() Settings {
	s := Settings{Terms: d.Terms, MaxDelay: d.MaxDelay, MaxSignalAge: d.MaxSignalAge}
	s.When = cmp.Or(s.When, defaultWhen)
	if s.AllowedDelay > 0 {
		s.said = termDelay
	}
	return s
}

// Origin describes the source of a setting.
type Origin struct{ Setting, Value, From string }

// limitDelay computes the effective delay of the workload.
func (s *Settings) limitDelay(rules *namespaceRules, mayWait bool) {
	if l := &s.Limits; s.said&termDelay == 0 && (l.Carbon > 0 || l.Percentile > 0 || l.HasPrice) {
		// A threshold requests a hold, but no level sets a delay.
		s.AllowedDelay = cmp.Or(s.MaxDelay, longestUnsaid)
	}
	switch {
	case rules.never || !mayWait:
		s.AllowedDelay = 0
	case s.MaxDelay > 0:
		s.AllowedDelay = min(s.AllowedDelay, s.MaxDelay)
	}
}

// longestUnsaid is the max delay of a workload with a threshold and without an allowed delay, if the cluster has no
// maximum.
const longestUnsaid = 24 * time.Hour

// Settle returns the job for the core and the effective settings of a workload under the rules. Its duration is the
// stated one, so that its latest start does not depend on learnt run times, see [sched.Job.Foresee].
func (r *Rules) Settle(w *Work) (sched.Job, Settings) {
	rules := r.of(w.Namespace)
	s := rules.settings(w.Type, w.scheduler())
	s.apply(&w.Marks.Terms)
	s.Mode = rules.mode
	s.namespace, s.owners = w.Namespace, w.Owners
	s.owners.Team = r.TeamOf(w.Namespace, w.Owners.Team)
	expected := rules.optedIn || r.expected(w)
	s.Ours = !w.Marks.Skip && (w.placed() || w.mayWait() || expected)
	s.limitDelay(rules, w.mayWait() || expected)

	m := &w.Marks
	job := w.job()
	job.Duration, job.AllowedDelay, job.FinishBy = s.Duration(), s.AllowedDelay, m.FinishBy
	if !w.StatesDuration() {
		job.Runtimes, _ = r.RunTimes(w.Namespace).Of(w)
	}
	job.Released = m.RunNow || m.ReleasedBefore || m.Skip || s.When == "now"
	rule := sched.StartRules[s.When]
	job.Done, job.RestartCost = m.Worked, m.RestartCost
	job.Interruptible = w.Interruptible && !w.pod && pausing(&rule) && m.Pauses < cmp.Or(m.MaxPauses, maxCount)
	if job.Interruptible && rule.Scale != nil && w.Elastic() {
		job.Scaling, _ = m.Replicas.Scaling() // valid, see ReadMarks
	}
	job.Limits, job.Class, job.PUE = s.Limits, w.Class, m.PUE
	job.GPUClass = s.GPUClass
	if onGPU := hardware.OnGPU(job.Class); job.Request.Devices() > 0 && r.classes[onGPU] {
		job.Class = onGPU
	}
	job.PerformanceWeight, job.HasPerformanceWeight = m.Performance, m.HasPerformance
	return job, s
}

// pausing reports whether a rule pauses running Jobs in a cluster.
func pausing(rule *sched.StartRule) bool { return rule.Interrupts && !rule.Together }

// scheduler returns the scheduler name that determines the terms of the workload.
func (w *Work) scheduler() string {
	if w.Marks.Gardener {
		return GardenerSchedulerName
	}
	return w.Scheduler
}

// Origins returns the source of each setting of a workload, to inform users.
func (r *Rules) Origins(w *Work) []Origin {
	said := map[string]Origin{}
	rules := r.of(w.Namespace)
	for _, l := range append(rules.layers(w.Type, w.scheduler()), layer{"annotation", w.Marks.Terms}) {
		for i := range entries {
			if e := &entries[i]; l.said&e.term != 0 {
				said[e.name] = Origin{e.name, fmt.Sprintf("%+v", e.value(&l.Terms)), l.from}
			}
		}
	}
	job, s := r.Settle(w)
	if job.Runtimes != nil {
		said["expectedDuration"] = Origin{"expectedDuration", job.Runtimes.Mean().Round(time.Second).String(), "learnt"}
	}
	said["mode"] = Origin{"mode", string(s.Mode), rules.modeFrom}
	if s.MaxDelay > 0 || rules.never {
		said["maxDelay"] = Origin{"maxDelay", s.MaxDelay.String(), rules.maxFrom}
	}
	return slices.SortedFunc(maps.Values(said), func(a, b Origin) int { return cmp.Compare(a.Setting, b.Setting) })
}

// expected reports whether the scheduler name of the workload implies that KubEnergy handles it even if it is not
// marked.
func (r *Rules) expected(w *Work) bool {
	switch w.Scheduler {
	case GardenerSchedulerName:
		return true
	case HybridSchedulerName:
		return w.Class != ""
	}
	return false
}

// applicable removes a price limit that is combined with a carbon limit if no zone has prices. Manifests of another
// system often contain both, and a limit that cannot be evaluated must not disable the other one.
func (r *Rules) applicable(l sched.Limits) sched.Limits {
	if !l.HasPrice || l.NoCarbon || l.Carbon == 0 && l.Percentile == 0 || r.priced() {
		return l
	}
	l.Price, l.HasPrice = 0, false
	return l
}

// Decide returns when and why the job starts, which is either Decision.Window.Start if it is held, or now. It does
// not choose a node.
func (r *Rules) Decide(now time.Time, job sched.Job, s Settings) sched.Decision {
	strategy := strategies()[s.Strategy()]
	if strategy == nil {
		return sched.Decision{Job: job.ID, Window: sched.Window{Start: now, End: now.Add(job.Duration)}}
	}
	d := strategy.Plan(r.Question(now, job, s))[0]
	if d.Reason.Kind == sched.NoRoom { // there are no nodes in the question
		d.Reason.Kind = sched.Cheapest
	}
	return d
}

// Saving returns the savings of a start according to the forecast. share is relative to the cost of an immediate
// start, and carbon is the saved emissions if carbon is considered. ok is false if the savings are unknown.
func (r *Rules) Saving(now time.Time, job sched.Job, s Settings, start time.Time) (share float64, carbon energy.Grams,
	ok bool,
) {
	q := r.Question(now, job, s)
	return q.Saving(&q.Queue[0], start)
}

// Question returns the input of [Rules.Decide].
func (r *Rules) Question(now time.Time, job sched.Job, s Settings) *sched.Snapshot {
	job.Limits = r.applicable(job.Limits)
	job.Foresee()
	policy := s.Policy()
	policy.Closed, policy.Budget, _ = r.BudgetClosed(now, s.namespace, s.owners)
	return &sched.Snapshot{Now: now, Queue: []sched.Job{job}, Sites: r.sites, Policy: policy}
}
