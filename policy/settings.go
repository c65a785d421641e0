package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/hardware"
	"github.com/kubenergy/kubenergy/sched"
)

// Settings are what holds for one workload once its annotations, its type, its namespace and the cluster have had their
// say, in this order.
type Settings struct {
	Mode v1alpha1.Mode
	Ours bool   // marked, or in a namespace that opted in, or for a scheduler whose users expect it
	Type string // workload type

	AllowedDelay     time.Duration
	hasDelay         bool          // somebody said it, be it 0
	MaxDelay         time.Duration // 0: no limit
	ExpectedDuration time.Duration // 0: nobody says
	Where, When      string        // of the strategy; Where is "" if nobody said
	Limits           sched.Limits
	Weights          sched.Weights
	MinSaving        float64
	MaxSignalAge     time.Duration

	MaxPower      energy.Watts // 0: any
	MinEfficiency float64      // 0: any
	GPUClass      string

	namespace string
	owners    Owners // whose budgets count
}

// Enforced reports whether decisions on the workload are carried out.
func (s *Settings) Enforced() bool { return s.Ours && s.Mode == v1alpha1.ModeEnforce }

// Strategy returns the strategy by name.
func (s *Settings) Strategy() string { return cmp.Or(s.Where, defaultWhere) + "+" + s.When }

// Duration returns how long the workload is expected to run.
func (s *Settings) Duration() time.Duration { return cmp.Or(max(s.ExpectedDuration, 0), time.Hour) }

// Policy returns the settings as the core takes them.
func (s *Settings) Policy() sched.Policy {
	return sched.Policy{Weights: s.Weights, MaxDelay: s.MaxDelay, MaxSignalAge: s.MaxSignalAge, MinSaving: s.MinSaving}
}

// Defaults holds where no object says anything.
type Defaults struct {
	Mode             v1alpha1.Mode // "" reads as enforce
	AllowedDelay     time.Duration // 0: nothing is held unless it says so itself
	MaxDelay         time.Duration // clamps every allowed delay, also the default; 0: no limit
	ExpectedDuration time.Duration // 0: nobody says, and it reads as an hour
	When             string        // "" reads as window
	Weights          sched.Weights
	MinSaving        float64
	MaxSignalAge     time.Duration // 0: any age
	// Schedulers are the settings of pods that name a scheduler, which stand between those of the cluster and those
	// of a namespace.
	Schedulers map[string]v1alpha1.WorkloadSettings
	NodePower  map[string]*energy.Profile // by node; "": of nodes of which nothing else is known
	Hardware   *hardware.Catalog          // nil: the bundled one alone
}

// BuiltIn returns what holds where nobody says anything at all.
func BuiltIn() Defaults {
	return Defaults{
		Mode: v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour, When: defaultWhen,
		// Providers publish every 5 to 60 minutes; two updates may fail before their last answer counts as stale.
		MaxSignalAge: 2 * time.Hour, MinSaving: 0.01, Schedulers: AliasSchedulers(),
	}
}

const (
	defaultWhere = "carbon"
	defaultWhen  = "window"
)

func (d *Defaults) settings() Settings {
	return Settings{
		AllowedDelay: d.AllowedDelay, hasDelay: d.AllowedDelay > 0, MaxDelay: d.MaxDelay,
		ExpectedDuration: d.ExpectedDuration, When: cmp.Or(d.When, defaultWhen),
		Weights: d.Weights, MinSaving: d.MinSaving, MaxSignalAge: d.MaxSignalAge,
	}
}

// layer is one voice: settings, and whose.
type layer struct {
	from string
	says v1alpha1.WorkloadSettings
}

// Origin says where one setting comes from.
type Origin struct{ Setting, Value, From string }

// recorder takes note of origins; nil takes none.
type recorder func(setting, from string, value any)

func (r recorder) note(setting, from string, value any) {
	if r != nil {
		r(setting, from, value)
	}
}

// apply lets one voice speak over those before it.
func (s *Settings) apply(l layer, r recorder) {
	w := &l.says
	if w.AllowedDelay != nil {
		s.AllowedDelay, s.hasDelay = w.AllowedDelay.Duration, true
		r.note("allowedDelay", l.from, s.AllowedDelay)
	}
	if w.ExpectedDuration != nil {
		s.ExpectedDuration = w.ExpectedDuration.Duration
		r.note("expectedDuration", l.from, s.ExpectedDuration)
	}
	if w.Hold != nil {
		s.applyHold(w.Hold, l.from, r)
	}
	if w.Weights != nil {
		s.Weights = sched.Weights{
			Carbon: w.Weights.Carbon, Wait: w.Weights.Wait, Price: w.Weights.Price, Utilisation: w.Weights.Utilisation,
		}
		r.note("weights", l.from, fmt.Sprintf("%+v", s.Weights))
	}
	if w.Strategy != "" {
		s.Where = w.Strategy
		r.note("strategy", l.from, s.Where)
	}
	if w.MaxPowerWatts != nil {
		s.MaxPower = energy.Watts(*w.MaxPowerWatts)
		r.note("maxPowerWatts", l.from, float64(s.MaxPower))
	}
	if w.MinEfficiency != nil {
		s.MinEfficiency = *w.MinEfficiency
		r.note("minEfficiency", l.from, s.MinEfficiency)
	}
	if w.GPUWorkloadType != "" {
		s.GPUClass = w.GPUWorkloadType
		r.note("gpuWorkloadType", l.from, s.GPUClass)
	}
}

// applyHold replaces what a hold waits for. Whoever names a threshold wants it to count, and an absolute one replaces a
// relative one of somebody before.
func (s *Settings) applyHold(h *v1alpha1.HoldSettings, from string, r recorder) {
	if h.CarbonThreshold != nil || h.CarbonPercentile != nil {
		s.Limits.Carbon, s.Limits.Percentile = 0, 0
		if h.CarbonThreshold != nil {
			s.Limits.Carbon = grid.Intensity(*h.CarbonThreshold)
			r.note("hold.carbonThreshold", from, *h.CarbonThreshold)
		}
		if h.CarbonPercentile != nil {
			s.Limits.Percentile = *h.CarbonPercentile / 100
			r.note("hold.carbonPercentile", from, *h.CarbonPercentile)
		}
		s.When = "threshold"
	}
	if h.PriceThreshold != nil {
		s.Limits.Price, s.Limits.HasPrice = grid.Price(*h.PriceThreshold), true
		s.When = "threshold"
		r.note("hold.priceThreshold", from, *h.PriceThreshold)
	}
	if h.Rule != "" {
		s.When = strings.ToLower(h.Rule)
	}
	if h.Rule != "" || h.CarbonThreshold != nil || h.CarbonPercentile != nil || h.PriceThreshold != nil {
		r.note("hold.rule", from, s.When)
	}
	if h.Carbon != nil {
		s.Limits.NoCarbon = !*h.Carbon
		r.note("hold.carbon", from, *h.Carbon)
	}
	if h.MinSaving != nil {
		s.MinSaving = *h.MinSaving
		r.note("hold.minSaving", from, s.MinSaving)
	}
}

// applyMarks lets the workload itself speak.
func (s *Settings) applyMarks(m *Marks, r recorder) {
	const from = "annotation"
	if where, _, both := strings.Cut(m.Strategy, "+"); m.Strategy != "" {
		s.Where = where
		if both {
			s.When = sched.When(m.Strategy)
		}
		r.note("strategy", from, m.Strategy)
	}
	s.applyMarkedLimits(m, r)
	if m.HasAllowedDelay {
		s.AllowedDelay, s.hasDelay = m.AllowedDelay, true
		r.note("allowedDelay", from, s.AllowedDelay)
	}
	if m.ExpectedDuration > 0 {
		s.ExpectedDuration = m.ExpectedDuration
		r.note("expectedDuration", from, s.ExpectedDuration)
	}
	if m.MaxPower > 0 {
		s.MaxPower = m.MaxPower
		r.note("maxPowerWatts", from, float64(s.MaxPower))
	}
	if m.MinEfficiency > 0 {
		s.MinEfficiency = m.MinEfficiency
		r.note("minEfficiency", from, s.MinEfficiency)
	}
	if m.GPUClass != "" {
		s.GPUClass = m.GPUClass
		r.note("gpuWorkloadType", from, s.GPUClass)
	}
}

// limitDelay says how long the workload may wait after all.
func (s *Settings) limitDelay(rules *namespaceRules, mayWait bool) {
	if !s.hasDelay && limited(s.Limits) {
		// A threshold asks to be held, and nobody says for how long.
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

func (s *Settings) applyMarkedLimits(m *Marks, r recorder) {
	if m.Limits.Carbon > 0 || m.Limits.Percentile > 0 {
		s.Limits.Carbon, s.Limits.Percentile = m.Limits.Carbon, m.Limits.Percentile
		if m.Limits.Carbon > 0 {
			r.note("hold.carbonThreshold", "annotation", float64(m.Limits.Carbon))
		}
		if m.Limits.Percentile > 0 {
			r.note("hold.carbonPercentile", "annotation", 100*m.Limits.Percentile)
		}
	}
	if m.Limits.HasPrice {
		s.Limits.Price, s.Limits.HasPrice = m.Limits.Price, true
		r.note("hold.priceThreshold", "annotation", float64(m.Limits.Price))
	}
	if m.limited() && !strings.Contains(m.Strategy, "+") {
		s.When = "threshold"
	}
	if m.HasCarbon {
		s.Limits.NoCarbon = m.Limits.NoCarbon
		r.note("hold.carbon", "annotation", !m.Limits.NoCarbon)
	}
}

// Settle returns the workload as the core sees it, and the settings that hold for it, as far as r knows them.
func (r *Rules) Settle(w *Work) (sched.Job, Settings) { return r.settle(w, nil) }

// Origins returns where each setting of a workload comes from, for people.
func (r *Rules) Origins(w *Work) []Origin {
	said := map[string]Origin{}
	_, s := r.settle(w, func(setting, from string, value any) {
		said[setting] = Origin{setting, fmt.Sprint(value), from}
	})
	rules := r.of(w.Namespace)
	said["mode"] = Origin{"mode", string(s.Mode), rules.modeFrom}
	if s.MaxDelay > 0 || rules.never {
		said["maxDelay"] = Origin{"maxDelay", s.MaxDelay.String(), rules.maxFrom}
	}
	origins := make([]Origin, 0, len(said))
	for _, o := range said {
		origins = append(origins, o)
	}
	slices.SortFunc(origins, func(a, b Origin) int { return cmp.Compare(a.Setting, b.Setting) })
	return origins
}

func (r *Rules) settle(w *Work, note recorder) (sched.Job, Settings) {
	rules := r.of(w.Namespace)
	scheduler := w.Scheduler
	if w.Marks.Gardener {
		scheduler = GardenerSchedulerName
	}
	s := rules.settings(w.Type, scheduler, note)
	s.applyMarks(&w.Marks, note)
	s.Mode, s.Type = rules.mode, w.Type
	s.namespace, s.owners = w.Namespace, w.Owners
	expected := rules.optedIn || r.expected(w)
	s.Ours = !w.Marks.Skip && (w.placed() || w.mayWait() || expected)
	s.limitDelay(rules, w.mayWait() || expected)

	m := &w.Marks
	job := w.job
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
	if !l.HasPrice || l.NoCarbon || l.Carbon == 0 && l.Percentile == 0 {
		return l
	}
	for _, site := range r.sites {
		if site.Price.Series != nil {
			return l
		}
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

// Saving returns what a start saves on the forecast, as a share of the cost of starting at once, and whether that is
// known.
func (r *Rules) Saving(now time.Time, job sched.Job, s Settings, start time.Time) (share float64, ok bool) {
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
