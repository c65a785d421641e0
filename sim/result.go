package sim

import (
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// Scenario is what a run depends on. Runs do not change it, so several strategies can share one.
type Scenario struct {
	Name   string
	Start  time.Time // when the trace begins; jobs are submitted at or after it
	Sites  []*sched.Site
	Nodes  []sched.Node // empty, with Free equal to Capacity
	Jobs   []sched.Job
	Policy sched.Policy
	Live   Live          // what strategies see of meters
	Slack  time.Duration // how late a release may be observed before it counts as late; 0 in simulation
}

// Outcome is what became of one job.
type Outcome struct {
	Job      int            // index in Scenario.Jobs
	Hold     sched.Decision // the decision that held it; its Window.Start is zero if nothing did
	Placed   sched.Decision // the decision that placed it; its Node is "" if none ever did
	Released time.Time      // from when on only room was lacking: submission, or the end of the hold
	Start    time.Time
	Finish   time.Time
}

// Held reports whether a hold put the job off.
func (o *Outcome) Held() bool { return !o.Hold.Window.Start.IsZero() }

// Sample is the state of the cluster over one interval, for plots.
type Sample struct {
	Time      time.Time
	Power     energy.Watts   // mean over the interval, at the sites' meters
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

// Result is one run of a scenario under one strategy.
type Result struct {
	Strategy string
	Scenario *Scenario
	Outcomes []Outcome // by index of Scenario.Jobs
	Totals
	NodeEnergy []energy.Joules // by index of Scenario.Nodes, PUE included
	End        time.Time       // when the last job finished
	Accounted  time.Time       // up to when energy was accounted; see [Align]
	BusyCPU    float64         // core-seconds requested by running jobs
	Timeline   []Sample
	Events     int           // arrivals, releases and completions
	Decisions  int           // calls of Strategy.Plan
	Elapsed    time.Duration // wall clock spent, on decisions and all else

	engine *engine // to account further, after the last job
}
