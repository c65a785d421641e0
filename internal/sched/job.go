package sched

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Resources are the amounts that a node provides or a job requests, in the units of the Kubernetes scheduler.
type Resources struct {
	MilliCPU int64 // in thousandths of a core
	Memory   int64 // in bytes
	GPU      int64 // in whole devices
	// MilliGPU counts partitions of GPUs, in thousandths of a device. A whole device cannot replace them, nor the
	// reverse.
	MilliGPU int64 `json:",omitempty"`
}

// Devices returns the GPUs and their partitions as a number of devices.
func (r Resources) Devices() float64 { return float64(r.GPU) + float64(r.MilliGPU)/1000 }

// Add returns r + o.
func (r Resources) Add(o Resources) Resources {
	return Resources{r.MilliCPU + o.MilliCPU, r.Memory + o.Memory, r.GPU + o.GPU, r.MilliGPU + o.MilliGPU}
}

// Sub returns r − o.
func (r Resources) Sub(o Resources) Resources {
	return Resources{r.MilliCPU - o.MilliCPU, r.Memory - o.Memory, r.GPU - o.GPU, r.MilliGPU - o.MilliGPU}
}

// CountIn returns how many times r fits into the free resources. For an empty request it returns math.MaxInt32.
func (r Resources) CountIn(free Resources) int64 {
	n := int64(math.MaxInt32)
	for d, asked := range r.Vector() {
		if asked > 0 {
			n = min(n, max(free.Vector()[d], 0)/asked)
		}
	}
	return n
}

// Max returns the larger amount of each resource.
func (r Resources) Max(o Resources) Resources {
	return Resources{
		max(r.MilliCPU, o.MilliCPU), max(r.Memory, o.Memory), max(r.GPU, o.GPU), max(r.MilliGPU, o.MilliGPU),
	}
}

// Within reports whether r fits into o. A resource that r does not request always fits, because the free amount of
// a node may be negative, for example after it lost GPUs.
func (r Resources) Within(o Resources) bool {
	return r.MilliCPU <= max(o.MilliCPU, 0) && r.Memory <= max(o.Memory, 0) && r.GPU <= max(o.GPU, 0) &&
		r.MilliGPU <= max(o.MilliGPU, 0)
}

// Job is a unit of work to schedule: a pod, a Kubernetes Job, a batch job, or a record of a trace.
type Job struct {
	ID        string        `json:"id"`
	Submitted time.Time     `json:"submitted"`
	Duration  time.Duration `json:"duration"` // expected run time on a node of speed 1
	// TimeLimit is the run time after which a batch system terminates the job; 0 means none. Strategies do not use
	// it.
	TimeLimit time.Duration     `json:"timeLimit,omitempty"`
	Request   Resources         `json:"request"`
	Selector  map[string]string `json:"selector,omitempty"` // labels that the node must have
	// Sites lists the sites where the job may run, by name, starting with its home site. If empty, the job may run
	// at every site.
	Sites []string `json:"sites,omitempty"`

	// Openings are the times at which a delayed start will find capacity, if known. If empty, any time is possible.
	// Only the start rule "window" uses them.
	Openings []Window `json:"-"`

	// AllowedDelay is the maximum delay of the start after submission; 0 means that the job must not be delayed.
	AllowedDelay time.Duration `json:"allowedDelay,omitempty"`
	FinishBy     time.Time     `json:"finishBy,omitzero"` // deadline for completion; zero means none
	// Released means that the job was held and then released, or that it must run now. It must not be held again.
	Released bool `json:"released,omitempty"`

	Limits Limits `json:"limits,omitzero"` // conditions of the start rule "threshold"
	// Class is the kind of work, for example "training", and the key of the nodes' benchmarks. Empty means unknown.
	Class    string `json:"class,omitempty"`
	GPUClass string `json:"gpuClass,omitempty"` // class of GPU work in power profiles; empty means unknown
	// PUE is the PUE for the job's energy. It takes precedence over the values of the node and the site. 0 means
	// unset.
	PUE float64 `json:"pue,omitempty"`

	// PerformanceWeight is used by the placements "hybrid" and "hybrid-idle": 0 only considers efficiency, 1 only
	// considers speed.
	PerformanceWeight    float64 `json:"-"`
	HasPerformanceWeight bool    `json:"-"` // if false, the weight is 0.5

	// Expected is the measured power of similar jobs, without idle power.
	Expected    energy.Watts `json:"-"`
	HasExpected bool         `json:"-"` // if false, the power is estimated from the node's power profile

	Owner string `json:"owner,omitempty"` // user or namespace; jobs of one owner tend to be similar
	Queue string `json:"queue,omitempty"` // wait class that the job was submitted to

	Place Place `json:"place,omitzero"` // result of the previous joint plan
	// Shortage is the longest time within the last days in which no node had capacity for such a job, see
	// [Shortages]. Only the start rule "guarded" uses it.
	Shortage time.Duration `json:"shortage,omitempty"`

	// Runtimes is the distribution of the run times of similar jobs, if the run time is uncertain. If nil, Duration
	// applies.
	Runtimes *Runtimes `json:"-"`
	// Interruptible means that the job may be suspended while it runs and resumed later, within its allowed delay.
	Interruptible bool          `json:"interruptible,omitempty"`
	RestartCost   time.Duration `json:"restartCost,omitempty"` // work that is repeated at each resume
	// Scaling is the range of replicas of an elastic job. If nil, the number of replicas is fixed.
	Scaling *Scaling `json:"scaling,omitempty"`
	// RoomAssured means that there is always capacity for the maximum number of replicas in Scaling.
	RoomAssured bool `json:"roomAssured,omitempty"`
	Running     bool `json:"running,omitempty"` // the job is running and may be suspended or continued
	// Done is the work completed so far, as run time on a node of speed 1.
	Done   time.Duration `json:"done,omitempty"`
	Worked time.Duration `json:"worked,omitempty"` // elapsed run time for Done; 0 means equal to Done
}

// Place is the planned node and start of a held job, and the expected saving.
type Place struct {
	Node   string       `json:"node"`
	Start  time.Time    `json:"start"`
	Saving float64      `json:"saving,omitempty"` // fraction of the cost of an immediate start
	Carbon energy.Grams `json:"carbon,omitempty"`
}

// Place returns the planned node and start of a decision that holds its job.
func (d *Decision) Place() Place {
	return Place{Node: d.Node, Start: d.Window.Start, Saving: d.Reason.Saving, Carbon: d.Reason.Carbon}
}

// Slack returns how much longer j may be delayed: the allowed delay minus the time since submission in which the
// job made no progress. It is never negative.
func (j *Job) Slack(now time.Time) time.Duration { return max(0, j.AllowedDelay-j.idle(now)) }

// idle returns the time since submission in which the job made no progress. Time for repeated work counts as idle.
func (j *Job) idle(now time.Time) time.Duration {
	return now.Sub(j.Submitted) - cmp.Or(j.Worked, j.Done)
}

// Nominal returns the power of the job's request on hardware without a power profile.
func (j *Job) Nominal() energy.Watts {
	return energy.Watts(nominalWattsPerCore * float64(j.Request.MilliCPU) / 1000)
}

// LatestStart returns the latest permitted start: submission plus the allowed delay, or earlier if the job would
// otherwise miss its completion deadline. It is never before the submission. For a job that has worked already, it is
// the latest time to resume, so that all pauses and the repeated work together take at most the allowed delay.
func (j *Job) LatestStart() time.Time { return j.latestStart(j.AllowedDelay) }

func (j *Job) latestStart(delay time.Duration) time.Time {
	latest := j.Submitted.Add(delay + j.progress())
	if !j.FinishBy.IsZero() {
		latest = timeutil.Earlier(latest, j.FinishBy.Add(-j.Unfinished()))
	}
	return timeutil.Later(latest, j.Submitted)
}

// Unfinished returns the expected run time of j from its next start, regardless of the run times of similar jobs. A job
// that has run longer than expected is expected to run for the same time again.
func (j *Job) Unfinished() time.Duration {
	if j.Done <= 0 {
		return j.Duration
	}
	return cmp.Or(max(0, j.Duration-j.Done), j.Done) + j.RestartCost
}

// progress returns by how much the work that a paused or running job has done postpones its deadline.
func (j *Job) progress() time.Duration {
	if j.Done <= 0 {
		return 0
	}
	return cmp.Or(j.Worked, j.Done) - j.RestartCost
}

// StartBy sets the allowed delay so that it ends at the given time.
func (j *Job) StartBy(latest time.Time) { j.AllowedDelay = latest.Sub(j.Submitted) - j.progress() }

// Foresee sets the duration to the mean of the run times of similar jobs, if they are known. The latest start is not
// changed, or becomes earlier.
func (j *Job) Foresee() {
	if j.Runtimes != nil {
		latest, delay := j.LatestStart(), j.AllowedDelay
		j.StartBy(latest)
		j.Duration, j.AllowedDelay = j.Runtimes.Mean(), min(j.AllowedDelay, delay)
	}
}

// opensAt reports whether a delayed start at t will find capacity, as far as openings are known.
func (j *Job) opensAt(t time.Time) bool {
	return len(j.Openings) == 0 || slices.ContainsFunc(j.Openings, func(w Window) bool {
		return !t.Before(w.Start) && !t.After(w.End)
	})
}

// Fits reports whether the node has the free CPU, memory and GPUs for the job and the labels that it selects, and
// belongs to a site where the job may run. It replaces the filters of a real scheduler in simulations and batch
// planning.
func (j *Job) Fits(n *Node) bool {
	return j.Request.Within(n.Free) && j.MayRunAt(n.Site) && j.Selects(n)
}

// MayRunAt reports whether the job may run at a site.
func (j *Job) MayRunAt(site *Site) bool {
	return len(j.Sites) == 0 || site != nil && slices.Contains(j.Sites, site.Name)
}

// Selects reports whether the node has the labels that the job selects.
func (j *Job) Selects(n *Node) bool {
	if len(j.Selector) == 0 { // avoids the cost of ranging over an empty map
		return true
	}
	for key, want := range j.Selector {
		if got, ok := n.Labels[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// Vector returns the amounts of CPU, memory, GPUs and partitions of GPUs, in this order and in the units of Resources.
func (r Resources) Vector() [4]int64 { return [4]int64{r.MilliCPU, r.Memory, r.GPU, r.MilliGPU} }

// left returns the expected remaining work of j: its duration minus the completed work or, with a run-time
// distribution, the mean residual run time. A job that has run longer than any known run time is expected to run
// for the same time again, because a long run time does not indicate that the job is about to finish.
func (j *Job) left() time.Duration {
	if j.Done <= 0 {
		return j.Duration
	}
	if left := j.workLeft(); left > 0 {
		return left
	}
	return j.Done
}

// Remaining returns the expected remaining run time of j on a node of speed 1 if it is not suspended. If the job
// has to be resumed first, this includes the repeated work.
func (j *Job) Remaining() time.Duration {
	if j.Done > 0 && !j.Running {
		return j.left() + j.RestartCost
	}
	return j.left()
}

// Window returns the expected run of j if it starts or resumes at the given time.
func (j *Job) Window(from time.Time) Window { return Window{from, from.Add(j.Remaining())} }

// Share returns the given fraction of r, rounded to whole units.
func (r Resources) Share(of float64) Resources {
	if of == 1 {
		return r
	}
	part := func(v int64) int64 { return int64(math.Round(of * float64(v))) }
	return Resources{part(r.MilliCPU), part(r.Memory), part(r.GPU), part(r.MilliGPU)}
}

// Plus returns r + o, or r − o if by is negative.
func (r Resources) Plus(by int, o Resources) Resources {
	if by < 0 {
		return r.Sub(o)
	}
	return r.Add(o)
}
