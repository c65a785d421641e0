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

// Settings are what holds for one workload once its annotations, its type, its namespace and the cluster have had their
// say, in this order.
type Settings struct {
	Terms

	Mode v1alpha1.Mode
	Ours bool   // marked, or in a namespace that opted in, or for a scheduler whose users expect it
	Type string // workload type

	MaxDelay     time.Duration // 0: no limit
	MaxSignalAge time.Duration

	namespace string
	owners    Owners // whose budgets count
}

// Enforced reports whether decisions on the workload are carried out.
func (s *Settings) Enforced() bool { return s.Ours && s.Mode == v1alpha1.ModeEnforce }

// Strategy returns the strategy by name.
func (s *Settings) Strategy() string { return cmp.Or(s.Where, "carbon") + "+" + s.When }

// Duration returns how long the workload is expected to run.
func (s *Settings) Duration() time.Duration { return cmp.Or(max(s.ExpectedDuration, 0), time.Hour) }

// Policy returns the settings as the core takes them.
func (s *Settings) Policy() sched.Policy {
	return sched.Policy{
		Weights: s.Weights, MaxDelay: s.MaxDelay, MaxSignalAge: s.MaxSignalAge,
		MinSaving: s.MinSaving, MinSavingPerHour: s.MinSavingPerHour, MinSavingGrams: s.MinSavingGrams,
	}
}

// Defaults holds where no object says anything.
type Defaults struct {
	// Without an AllowedDelay nothing is held unless it says so itself, an ExpectedDuration of 0 reads as an hour, and
	// no When as window.
	Terms

	Mode         v1alpha1.Mode // "" reads as enforce
	MaxDelay     time.Duration // clamps every allowed delay, also the default; 0: no limit
	MaxSignalAge time.Duration // 0: any age
	// Schedulers are the settings of pods that name a scheduler, which stand between those of the cluster and those
	// of a namespace.
	Schedulers map[string]Terms
	NodePower  map[string]*energy.Profile // by node; "": of nodes of which nothing else is known
	AnyPower   *energy.Profile            // of the same, for books alone: the scheduler has none; nil: there is none
	Hardware   *hardware.Catalog          // nil: the bundled one alone
}

// UnknownHardware is the name of the profile of all nodes of which nothing is known.
const UnknownHardware = "unknown-hardware"

// BuiltIn returns what holds in a cluster that sets nothing.
func BuiltIn() Defaults {
	return Defaults{
		Mode: v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour,
		// Providers publish every 5 to 60 minutes; two updates may fail before their last answer counts as stale.
		MaxSignalAge: 2 * time.Hour,
		// Of what no hold saves less than 0.01 would save at most, this keeps nine tenths in two thirds of the waiting:
		// docs/decisions/0027-held-for-something.md.
		Terms:      Terms{When: defaultWhen, MinSaving: 0.01, MinSavingPerHour: 0.005},
		Schedulers: aliasSchedulers(),
	}
}

const defaultWhen = "window"

// A ChangedDefault is built in with another value than in the release before. kubenergy doctor tells of it where it is
// not set.
type ChangedDefault struct {
	Setting string // of EnergyPolicies
	Flag    string // of the scheduler
	Was, Is string
	Effect  string
	term    term
}

// ChangedDefaults are those of this release: each has a line with [CHANGE] in CHANGELOG.md.
var ChangedDefaults = []ChangedDefault{{
	Setting: "hold.minSavingPerHour", Flag: "--kubenergy-min-saving-per-hour", Was: "0", Is: "0.005",
	Effect: "work waits for less long, since each hour of waiting must save 0.5 %", term: termMinSavingPerHour,
}}

// SetBy reports whether a policy sets it, for all types.
func (c *ChangedDefault) SetBy(p *v1alpha1.EnergyPolicy) bool {
	return termsOf(&p.Spec.WorkloadSettings).said&c.term != 0
}

func (d *Defaults) settings() Settings {
	s := Settings{Terms: d.Terms, MaxDelay: d.MaxDelay, MaxSignalAge: d.MaxSignalAge}
	s.When = cmp.Or(s.When, defaultWhen)
	if s.AllowedDelay > 0 {
		s.said = termDelay
	}
	return s
}

// Origin says where one setting comes from.
type Origin struct{ Setting, Value, From string }

// limitDelay says how long the workload may wait after all.
func (s *Settings) limitDelay(rules *namespaceRules, mayWait bool) {
	if l := &s.Limits; s.said&termDelay == 0 && (l.Carbon > 0 || l.Percentile > 0 || l.HasPrice) {
		// A threshold asks to be held, and no level says for how long.
		s.AllowedDelay = cmp.Or(s.MaxDelay, longestUnsaid)
	}
	switch {
	case rules.never || !mayWait:
		s.AllowedDelay = 0
	case s.MaxDelay > 0:
		s.AllowedDelay = min(s.AllowedDelay, s.MaxDelay)
	}
}

// longestUnsaid is how long is held what has a threshold and no delay, in a cluster without a maximum.
const longestUnsaid = 24 * time.Hour

// Settle returns the workload as the core sees it, and the settings that hold for it, as far as r knows them.
func (r *Rules) Settle(w *Work) (sched.Job, Settings) {
	rules := r.of(w.Namespace)
	s := rules.settings(w.Type, w.scheduler())
	s.apply(&w.Marks.Terms)
	s.Mode, s.Type = rules.mode, w.Type
	s.namespace, s.owners = w.Namespace, w.Owners
	s.owners.Team = r.TeamOf(w.Namespace, w.Owners.Team)
	expected := rules.optedIn || r.expected(w)
	s.Ours = !w.Marks.Skip && (w.placed() || w.mayWait() || expected)
	s.limitDelay(rules, w.mayWait() || expected)

	m := &w.Marks
	job := w.job()
	job.Duration, job.AllowedDelay, job.FinishBy = s.Duration(), s.AllowedDelay, m.FinishBy
	job.Released = m.RunNow || m.ReleasedBefore || m.Skip || s.When == "now"
	job.Limits, job.Class, job.PUE = s.Limits, w.Class, m.PUE
	job.GPUClass = s.GPUClass
	if onGPU := hardware.OnGPU(job.Class); job.Request.GPU > 0 && r.classes[onGPU] {
		job.Class = onGPU
	}
	job.PerformanceWeight, job.HasPerformanceWeight = m.Performance, m.HasPerformance
	return job, s
}

// scheduler returns the name of the scheduler whose terms hold for the workload.
func (w *Work) scheduler() string {
	if w.Marks.Gardener {
		return GardenerSchedulerName
	}
	return w.Scheduler
}

// Origins returns where each setting of a workload comes from, for people.
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
	_, s := r.Settle(w)
	said["mode"] = Origin{"mode", string(s.Mode), rules.modeFrom}
	if s.MaxDelay > 0 || rules.never {
		said["maxDelay"] = Origin{"maxDelay", s.MaxDelay.String(), rules.maxFrom}
	}
	return slices.SortedFunc(maps.Values(said), func(a, b Origin) int { return cmp.Compare(a.Setting, b.Setting) })
}

// expected reports whether pods that name this scheduler expect us to deal with them, marked or not.
func (r *Rules) expected(w *Work) bool {
	switch w.Scheduler {
	case GardenerSchedulerName:
		return true
	case HybridSchedulerName:
		return w.Class != ""
	}
	return false
}

// applicable drops a limit of the price beside one of carbon where no zone has prices at all: manifests that come from
// another system often carry both, and the one that cannot be judged must not defeat the other.
func (r *Rules) applicable(l sched.Limits) sched.Limits {
	if !l.HasPrice || l.NoCarbon || l.Carbon == 0 && l.Percentile == 0 || r.priced() {
		return l
	}
	l.Price, l.HasPrice = 0, false
	return l
}

// Decide returns when the job is to start: held until Decision.Window.Start, or now, and why. Nodes are not its
// business.
func (r *Rules) Decide(now time.Time, job sched.Job, s Settings) sched.Decision {
	strategy := strategies()[s.Strategy()]
	if strategy == nil {
		return sched.Decision{Job: job.ID, Window: sched.Window{Start: now, End: now.Add(job.Duration)}}
	}
	return strategy.Plan(r.Question(now, job, s))[0]
}

// Saving returns what a start saves on the forecast: the share of the cost of starting at once, the emissions where
// carbon counts, and whether that is known.
func (r *Rules) Saving(now time.Time, job sched.Job, s Settings, start time.Time) (share float64, carbon energy.Grams,
	ok bool,
) {
	q := r.Question(now, job, s)
	return q.Saving(&q.Queue[0], start)
}

// Question returns what [Rules.Decide] decides on.
func (r *Rules) Question(now time.Time, job sched.Job, s Settings) *sched.Snapshot {
	job.Limits = r.applicable(job.Limits)
	// here, what runs is never suspended: only the simulator does that yet
	job.Interruptible, job.Running = false, false
	policy := s.Policy()
	policy.Closed, policy.Budget, _ = r.BudgetClosed(now, s.namespace, s.owners)
	return &sched.Snapshot{Now: now, Queue: []sched.Job{job}, Sites: r.sites, Policy: policy}
}
