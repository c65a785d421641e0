package sched

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Resources are amounts of what a node has and a job asks for, in the units of Kubernetes' scheduler.
type Resources struct {
	MilliCPU int64 // thousandths of a core
	Memory   int64 // bytes
	GPU      int64 // whole devices
}

// Add returns r + o.
func (r Resources) Add(o Resources) Resources {
	return Resources{r.MilliCPU + o.MilliCPU, r.Memory + o.Memory, r.GPU + o.GPU}
}

// Sub returns r − o.
func (r Resources) Sub(o Resources) Resources {
	return Resources{r.MilliCPU - o.MilliCPU, r.Memory - o.Memory, r.GPU - o.GPU}
}

// CountIn returns how often r fits into what is free; of what asks for nothing, as often as anything may.
func (r Resources) CountIn(free Resources) int64 {
	n := int64(math.MaxInt32)
	for d, asked := range r.Vector() {
		if asked > 0 {
			n = min(n, max(free.Vector()[d], 0)/asked)
		}
	}
	return n
}

// Max returns the larger amount of each.
func (r Resources) Max(o Resources) Resources {
	return Resources{max(r.MilliCPU, o.MilliCPU), max(r.Memory, o.Memory), max(r.GPU, o.GPU)}
}

// Within reports whether r is at most o in every dimension that it has something of: a node may have less than nothing
// free, as of GPUs that it lost.
func (r Resources) Within(o Resources) bool {
	return r.MilliCPU <= max(o.MilliCPU, 0) && r.Memory <= max(o.Memory, 0) && r.GPU <= max(o.GPU, 0)
}

// Job is what is to be run: a pod, a Kubernetes Job, a batch job, a row of a trace.
type Job struct {
	ID        string        `json:"id"`
	Submitted time.Time     `json:"submitted"`
	Duration  time.Duration `json:"duration"` // expected run time on a node of speed 1
	// after which a batch system ends it; 0: none. No strategy looks at it
	TimeLimit time.Duration     `json:"timeLimit,omitempty"`
	Request   Resources         `json:"request"`
	Selector  map[string]string `json:"selector,omitempty"` // labels that a node must carry
	// where it may run, by name, the first is its home; none: at every site
	Sites []string `json:"sites,omitempty"`

	// Openings are the times at which a later start than now will find room, where that is known; none: any time. Only
	// the when "window" heeds them.
	Openings []Window `json:"-"`

	// how long the start may be put off after submission; 0: not at all
	AllowedDelay time.Duration `json:"allowedDelay,omitempty"`
	FinishBy     time.Time     `json:"finishBy,omitzero"` // deadline of the finish; zero: none
	// was held and let go, or was told to run now: never hold it (again)
	Released bool `json:"released,omitempty"`

	Limits Limits `json:"limits,omitzero"` // what the when "threshold" waits for
	// kind of work, as in "training": names a benchmark of nodes; "": not said
	Class    string `json:"class,omitempty"`
	GPUClass string `json:"gpuClass,omitempty"` // class of GPU work, as power profiles name it; "": not said
	// what this job's energy is accounted with, whatever node and site say; 0: what they say
	PUE float64 `json:"pue,omitempty"`

	// of the wheres "hybrid" and "hybrid-idle": 0 efficiency alone, 1 speed alone
	PerformanceWeight    float64 `json:"-"`
	HasPerformanceWeight bool    `json:"-"` // else it is one half

	// what jobs like this one were measured to draw, idle power left out
	Expected    energy.Watts `json:"-"`
	HasExpected bool         `json:"-"` // false: unknown, and the node's power profile estimates it

	Owner string `json:"owner,omitempty"` // whose work it is; jobs of one owner tend to be alike
	Queue string `json:"queue,omitempty"` // the wait class that it was submitted to

	Place Place `json:"place,omitzero"` // where and when the last plan of the when "plan" has it

	// how long jobs like this one run, where that is not known; nil: Duration is
	Runtimes *Runtimes `json:"-"`
	// may be suspended while it runs, and resumed later, as long as it has slack
	Interruptible bool          `json:"interruptible,omitempty"`
	RestartCost   time.Duration `json:"restartCost,omitempty"` // work that is done once more at each resume
	// how many replicas it may run on; nil: as many as it asks for
	Scaling *Scaling `json:"scaling,omitempty"`
	// there will be room for all replicas that Scaling allows, whenever they are wanted
	RoomAssured bool `json:"roomAssured,omitempty"`
	Running     bool `json:"running,omitempty"` // runs now, and it is asked whether it goes on
	// work that it has done so far, as the time that it takes on a node of speed 1
	Done   time.Duration `json:"done,omitempty"`
	Worked time.Duration `json:"worked,omitempty"` // time that this took; 0: Done, as on nodes of speed 1
}

// Place is where and when a plan has a job that is held, and what that saves.
type Place struct {
	Node   string       `json:"node"`
	Start  time.Time    `json:"start"`
	Saving float64      `json:"saving,omitempty"` // share of what a start at once would cost
	Carbon energy.Grams `json:"carbon,omitempty"`
}

// Place returns where and when a decision has a job that it holds.
func (d *Decision) Place() Place {
	return Place{Node: d.Node, Start: d.Window.Start, Saving: d.Reason.Saving, Carbon: d.Reason.Carbon}
}

// Slack returns how much longer j may be kept from working: the allowed delay, less the time since submission in
// which no work was done. It is never negative.
func (j *Job) Slack(now time.Time) time.Duration { return max(0, j.AllowedDelay-j.idle(now)) }

// idle returns the time since submission in which no work was done, what was done once more included.
func (j *Job) idle(now time.Time) time.Duration {
	return now.Sub(j.Submitted) - cmp.Or(j.Worked, j.Done)
}

// Nominal returns the power of the job's request on hardware of which nothing is known.
func (j *Job) Nominal() energy.Watts {
	return energy.Watts(nominalWattsPerCore * float64(j.Request.MilliCPU) / 1000)
}

// LatestStart returns the last instant to which the start may be put off: submission plus the allowed delay, earlier if
// the job would otherwise miss the deadline of its finish. It is never before submission.
func (j *Job) LatestStart() time.Time {
	latest := j.Submitted.Add(j.AllowedDelay)
	if !j.FinishBy.IsZero() {
		latest = timeutil.Earlier(latest, j.FinishBy.Add(-j.Duration))
	}
	if latest.Before(j.Submitted) {
		return j.Submitted
	}
	return latest
}

// opensAt reports whether a start later than now will find room, as far as that is known.
func (j *Job) opensAt(t time.Time) bool {
	return len(j.Openings) == 0 || slices.ContainsFunc(j.Openings, func(w Window) bool {
		return !t.Before(w.Start) && !t.After(w.End)
	})
}

// Fits models feasibility: the node has the free CPU, memory and GPUs, and the labels that the job selects, and is at
// a site where the job may run. It stands in for a real scheduler's filters where there is none.
func (j *Job) Fits(n *Node) bool {
	return j.Request.Within(n.Free) && j.MayRunAt(n.Site) && j.Selects(n)
}

// MayRunAt reports whether the job may run at a site.
func (j *Job) MayRunAt(site *Site) bool {
	return len(j.Sites) == 0 || site != nil && slices.Contains(j.Sites, site.Name)
}

// Selects reports whether the node has the labels that the job selects.
func (j *Job) Selects(n *Node) bool {
	if len(j.Selector) == 0 { // starting to range over an empty map costs more than all the rest
		return true
	}
	for key, want := range j.Selector {
		if got, ok := n.Labels[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// Vector returns the amounts of CPU, memory and GPUs, in this order and in the units of r.
func (r Resources) Vector() [3]int64 { return [3]int64{r.MilliCPU, r.Memory, r.GPU} }

// left is how much work is expected to be left of j: its duration less what is done, or the mean of what those that
// ran for so long run further. What has outlived all that was known of it is taken to run for as long again: nothing
// that still runs is about to end for having run too long.
func (j *Job) left() time.Duration {
	if j.Done <= 0 {
		return j.Duration
	}
	if left := j.workLeft(); left > 0 {
		return left
	}
	return j.Done
}

// Remaining is how long j is expected to run from now on on a node of speed 1 unless it is suspended: what is left of
// it, and what has to be done once more where it is resumed.
func (j *Job) Remaining() time.Duration {
	if j.Done > 0 && !j.Running {
		return j.left() + j.RestartCost
	}
	return j.left()
}

// Window is that in which j is expected to run from an instant on.
func (j *Job) Window(from time.Time) Window { return Window{from, from.Add(j.Remaining())} }

// Share returns a part of what a job asks for.
func (r Resources) Share(of float64) Resources {
	if of == 1 {
		return r
	}
	part := func(v int64) int64 { return int64(math.Round(of * float64(v))) }
	return Resources{part(r.MilliCPU), part(r.Memory), part(r.GPU)}
}

// Plus returns r + by·o, for 1 and -1.
func (r Resources) Plus(by int, o Resources) Resources {
	if by < 0 {
		return r.Sub(o)
	}
	return r.Add(o)
}
