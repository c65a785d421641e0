package sim

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Scenario contains the input of a run. Runs do not modify it, so it can be shared by several strategies.
type Scenario struct {
	Name  string
	Start time.Time // start of the trace; no job is submitted earlier
	Sites []*sched.Site
	Nodes []sched.Node // empty nodes, with Free equal to Capacity
	Jobs  []sched.Job  // with their true durations
	// Use is the fraction of its CPU request that each job uses, by index of Jobs. If it is nil, jobs use their
	// whole request. It is never passed to strategies.
	Use    []float64
	Policy sched.Policy
	Live   Live          // meters as seen by strategies
	Slack  time.Duration // tolerated delay of an observed release; 0 in simulations

	// Foresight contains the forecasts for strategies, by index of Sites. A nil slice or element means the true
	// values.
	Foresight []Foresight
	Learner   func() predict.Learner // creates the run-time model of each run; nil for the true run times
	// Power creates the model of the power of jobs for each run, which learns from virtual meters. If it is nil,
	// strategies use the power profiles of nodes.
	Power func() predict.PowerLearner
	Sleep SleepRules // for machines that take time to boot
	Queue QueueRules // rules of the queue; the zero value behaves like kube-scheduler
	// CarbonPrice is the price of a tonne of CO2e, or 0 if there is none. It is only used in reports.
	CarbonPrice float64

	Notes []string // for reports: skipped rows and filled values of the input files
}

// Sleeps reports whether any machine draws less power when asleep than when idle.
func (s *Scenario) Sleeps() bool {
	return slices.ContainsFunc(s.Nodes, func(n sched.Node) bool { return n.Profile.Sleeps() })
}

// StayingAwake returns a copy of the scenario with machines that never sleep.
func (s *Scenario) StayingAwake() *Scenario {
	awake := *s
	awake.Nodes = StayAwake(s.Nodes)
	return &awake
}

// Foresight provides the forecast of a site's carbon intensity at any time.
type Foresight interface {
	// At returns the signal known at now. The series starts at or before now with the current value, followed by
	// the forecast.
	At(now time.Time) grid.Signal
}

// QueueRules configures how the queue is planned as a whole. If any rule is set, it applies to all strategies.
// Strategies that require the whole queue plan in this way even without rules.
type QueueRules struct {
	Window  int           // maximum number of jobs per plan, from the head of the queue; 0 for all
	PerStep int           // maximum number of placements per plan, in the order of the queue; 0 for all
	Step    time.Duration // interval between plans since the start; 0 to plan at every arrival, release and completion
	// Backfill replaces the three rules above: jobs start in order of submission, and at this interval, jobs behind
	// one that does not fit may start as well, like in Slurm; 0 to disable
	Backfill time.Duration
	// Epilog is the time until the cores of an ended job become free, with Backfill.
	Epilog time.Duration
}

// Outcome is the result of one job.
type Outcome struct {
	Job         int             // index in Scenario.Jobs
	Hold        *sched.Decision // the last decision that held it before its first run; nil if it was not held
	Placed      Placed          // the decision that started it first; its Node is empty if it never started
	HadCapacity bool            // for jobs that may be held: whether a node had capacity at the submission
	Released    time.Time       // time from which it only waited for capacity: submission, or the end of the hold
	Start       time.Time       // start of the first run
	Finish      time.Time

	Runs        []sched.Window // runs of a job that was suspended or scaled; otherwise nil
	Replicas    []int          // number of replicas of each run if chosen by the strategy; otherwise nil
	Suspensions int
	Lost        time.Duration // work repeated after suspensions, on a node of speed 1
	Redone      time.Duration // time of the last run spent on repeated work
	// Delayed is the time in which decisions kept the job from useful work: holds, suspensions and repeated work,
	// minus the time saved by more than the minimum number of replicas.
	Delayed time.Duration
}

// Placed contains the relevant fields of the decision that started a job.
type Placed struct {
	Node   string
	Cost   sched.Estimate // as estimated by the strategy
	Reason sched.ReasonKind
}

// Held reports whether a hold delayed the job.
func (o *Outcome) Held() bool { return o.Hold != nil }

// HeldUntil returns the planned end of the hold that delayed the job, or the zero time if it was not held.
func (o *Outcome) HeldUntil() time.Time {
	if o.Hold == nil {
		return time.Time{}
	}
	return o.Hold.Window.Start
}

// Windows returns the runs of a job that was placed.
func (o *Outcome) Windows() []sched.Window {
	if len(o.Runs) > 0 {
		return o.Runs
	}
	return []sched.Window{{Start: o.Start, End: o.Finish}}
}

// Idle returns the time between the submission and the completion of j in which it did not run for any reason.
func (o *Outcome) Idle(j *sched.Job) time.Duration {
	idle := o.Start.Sub(j.Submitted)
	for k := 1; k < len(o.Runs); k++ {
		idle += o.Runs[k].Start.Sub(o.Runs[k-1].End)
	}
	return idle
}

// BoundedSlowdown returns the ratio of the time from submission to completion of j to its run time. Run times of
// less than ten seconds count as ten seconds (Feitelson et al., Theory and Practice in Parallel Job Scheduling,
// 1997).
func BoundedSlowdown(j *sched.Job, o *Outcome) float64 {
	const bound = 10 * time.Second
	took := o.Finish.Sub(j.Submitted)
	return max(1, took.Seconds()/max(took-o.Idle(j), bound).Seconds())
}

// Overdue returns the time by which decisions delayed j beyond its allowed delay; negative if they met it. Time
// spent waiting for capacity does not count. If a job was resumed without remaining slack, it may be overdue by up
// to the time of its last restart (Redone), which is added.
func (o *Outcome) Overdue(j *sched.Job) time.Duration {
	if o.Suspensions > 0 || o.Replicas != nil {
		return o.Delayed - j.AllowedDelay
	}
	return o.Released.Sub(j.LatestStart())
}

// Sample is the state of the cluster in one interval, for plots.
type Sample struct {
	Time      time.Time
	Power     energy.Watts   // mean over the interval, at the sites' meters
	Idle      energy.Watts   // part of Power that awake machines would draw without jobs
	Asleep    energy.Watts   // part of Power drawn by sleeping machines
	Intensity grid.Intensity // mean of the sites, weighted by their power
	Running   int            // as of Time
	Queued    int
	Held      int
}

// Totals contains sums at the sites' meters, including PUE.
type Totals struct {
	Energy energy.Joules
	Carbon energy.Grams
	Cost   grid.Money
}

// Cell contains the totals of one node in one interval.
type Cell struct {
	Totals
	Busy   float64 // core-seconds requested by running jobs
	Asleep float64 // seconds in which it was asleep or booting
}

// Result is the result of one run of a scenario under one strategy.
type Result struct {
	Strategy string
	Scenario *Scenario
	Outcomes []Outcome // by index of Scenario.Jobs
	Totals
	NodeEnergy []energy.Joules // by index of Scenario.Nodes, including PUE
	Cells      [][]Cell        // by interval of CellStep since Scenario.Start and by index of Scenario.Nodes
	CellStep   time.Duration
	End        time.Time // completion of the last job
	Accounted  time.Time // end of the accounted time; see [Align]
	BusyCPU    float64   // core-seconds requested by running jobs
	Sleep      Sleep
	Power      []PowerChange // of machines that take time to boot, in order; all are awake initially
	Timeline   []Sample
	Decisions  int           // number of calls of Strategy.Plan
	Elapsed    time.Duration // elapsed real time of the run, including decisions

	engine *engine // to continue the accounting after the last job
}
