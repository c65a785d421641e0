package sim

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Scenario is what a run depends on. Runs do not change it, so several strategies can share one.
type Scenario struct {
	Name  string
	Start time.Time // when the trace begins; jobs are submitted at or after it
	Sites []*sched.Site
	Nodes []sched.Node // empty, with Free equal to Capacity
	Jobs  []sched.Job  // with their true durations
	// by index of Jobs: the share of its CPU request that a job keeps busy; nil: all of it. Strategies are never told
	Use    []float64
	Policy sched.Policy
	Live   Live          // what strategies see of meters
	Slack  time.Duration // how late a release may be observed before it counts as late; 0 in simulation

	// by index of Sites: what strategies see of intensity; nil, or a nil entry: the truth
	Foresight []Foresight
	Learner   func() predict.Learner // makes what strategies are told of run times, anew for each run; nil: the truth
	// Power makes what strategies are told of the power of jobs, from what virtual meters have read of others, anew
	// for each run; nil: nothing, so that they go by the power profiles of nodes.
	Power func() predict.PowerLearner
	Sleep SleepRules // of machines that take time to boot
	Queue QueueRules // how the queue is served; zero: as kube-scheduler serves it
	// of a tonne; 0: none. Reports alone look at it
	CarbonPrice float64

	Notes []string // what was left out of the files, and what was filled in: for reports
}

// Sleeps reports whether some machine draws less asleep than idle.
func (s *Scenario) Sleeps() bool {
	return slices.ContainsFunc(s.Nodes, func(n sched.Node) bool { return n.Profile.Sleeps() })
}

// StayingAwake returns the same scenario with machines that never sleep.
func (s *Scenario) StayingAwake() *Scenario {
	awake := *s
	awake.Nodes = StayAwake(s.Nodes)
	return &awake
}

// Foresight is what could be known of a site's carbon intensity at any time.
type Foresight interface {
	// At returns the signal as it is known at now: its series begins at or before now with the present value, and
	// goes on with what is forecast.
	At(now time.Time) grid.Signal
}

// QueueRules say how a queue is planned as a whole. Scenarios that set any of them are planned in this way under every
// strategy, and strategies that want the whole queue at once are under every scenario.
type QueueRules struct {
	Window  int           // a plan is made for so many jobs, those at the head of the queue; 0: all
	PerStep int           // of a plan so many placements are carried out, the first of the queue; 0: all
	Step    time.Duration // between two plans, counted from the start; 0: at every arrival, release and completion
	// Backfill, instead of these three: jobs start in order of submission, and so often also those behind one that has
	// no room, as Slurm has it; 0: not so
	Backfill time.Duration
	// Epilog is how long the cores of a job that has ended are not free yet, with Backfill.
	Epilog time.Duration
}

// Outcome is what became of one job.
type Outcome struct {
	Job      int             // index in Scenario.Jobs
	Hold     *sched.Decision // the last decision that held it before it ran for the first time; nil if nothing did
	Placed   Placed          // the decision that started it first; its Node is "" if none ever did
	Released time.Time       // from when on only room was lacking for its start: submission, or the end of the hold
	Start    time.Time       // when it ran first
	Finish   time.Time

	Runs        []sched.Window // the times in which it ran, where it was suspended in between or scaled; else nil
	Replicas    []int          // and on how many replicas, where a strategy chose that; else nil
	Suspensions int
	Lost        time.Duration // work that was done once more after suspensions, on a node of speed 1
	Redone      time.Duration // time of its last run in which work was done once more
	// Time in which decisions kept it from useful work: holds, suspensions and work done once more; less what it
	// gained on more replicas than its least.
	Delayed time.Duration
}

// Placed is what is kept of the decision that started a job.
type Placed struct {
	Node   string
	Cost   sched.Estimate // as the strategy saw it
	Reason sched.ReasonKind
}

// Held reports whether a hold put the job off.
func (o *Outcome) Held() bool { return o.Hold != nil }

// HeldUntil returns the end of the hold that put the job off, as it was decided; zero if nothing did.
func (o *Outcome) HeldUntil() time.Time {
	if o.Hold == nil {
		return time.Time{}
	}
	return o.Hold.Window.Start
}

// Windows returns when a job that was placed ran.
func (o *Outcome) Windows() []sched.Window {
	if len(o.Runs) > 0 {
		return o.Runs
	}
	return []sched.Window{{Start: o.Start, End: o.Finish}}
}

// Idle returns for how much of the time between its submission and its finish j did not run, whatever kept it from
// that.
func (o *Outcome) Idle(j *sched.Job) time.Duration {
	idle := o.Start.Sub(j.Submitted)
	for k := 1; k < len(o.Runs); k++ {
		idle += o.Runs[k].Start.Sub(o.Runs[k-1].End)
	}
	return idle
}

// BoundedSlowdown returns how many times as long as it runs j takes from its submission to its finish; of jobs that run
// for less than ten seconds, as if they ran for so long (Feitelson et al., Theory and Practice in Parallel Job
// Scheduling, 1997).
func BoundedSlowdown(j *sched.Job, o *Outcome) float64 {
	const bound = 10 * time.Second
	took := o.Finish.Sub(j.Submitted)
	return max(1, took.Seconds()/max(took-o.Idle(j), bound).Seconds())
}

// Overdue returns for how much longer than j allows decisions kept it from working; negative if they kept to it. Time
// in which there was no room does not count. A job that was suspended may be overdue by up to what restarting took it
// last (Redone), if it was resumed when its slack was used up already: that comes on top.
func (o *Outcome) Overdue(j *sched.Job) time.Duration {
	if o.Suspensions > 0 || o.Replicas != nil {
		return o.Delayed - j.AllowedDelay
	}
	return o.Released.Sub(j.LatestStart())
}

// Sample is the state of the cluster over one interval, for plots.
type Sample struct {
	Time      time.Time
	Power     energy.Watts   // mean over the interval, at the sites' meters
	Idle      energy.Watts   // of it: what machines that are awake would draw without a job
	Asleep    energy.Watts   // of it: what machines draw that sleep
	Intensity grid.Intensity // mean of the sites, weighted with their power
	Running   int            // at Time
	Queued    int
	Held      int
}

// Totals are sums at the sites' meters, PUE included.
type Totals struct {
	Energy energy.Joules
	Carbon energy.Grams
	Cost   grid.Money
}

// Cell is what one node came to over one interval.
type Cell struct {
	Totals
	Busy   float64 // core-seconds requested by running jobs
	Asleep float64 // seconds in which it slept, or booted
}

// Result is one run of a scenario under one strategy.
type Result struct {
	Strategy string
	Scenario *Scenario
	Outcomes []Outcome // by index of Scenario.Jobs
	Totals
	NodeEnergy []energy.Joules // by index of Scenario.Nodes, PUE included
	Cells      [][]Cell        // by interval of CellStep from Scenario.Start, then by index of Scenario.Nodes
	CellStep   time.Duration
	End        time.Time // when the last job finished
	Accounted  time.Time // up to when energy was accounted; see [Align]
	BusyCPU    float64   // core-seconds requested by running jobs
	Sleep      Sleep
	Power      []PowerChange // of machines that take time to boot, in order; all are awake at first
	Timeline   []Sample
	Events     int           // whatever the engine looked at: arrivals, completions, releases, jobs asked again
	Decisions  int           // calls of Strategy.Plan
	Elapsed    time.Duration // wall clock spent, on decisions and all else

	engine *engine // to account further, after the last job
}
