package policy

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// RunTimes are the learnt run times of the completed Jobs of a namespace. It is safe for concurrent use.
type RunTimes struct {
	mu     sync.Mutex
	groups *predict.Groups
}

// random are the characters that the API server appends to generateName.
const random = "bcdfghjklmnpqrstvwxz2456789"

// series returns the part of the name that the runs of a Job have in common: without the time of a CronJob's run, the
// random characters of generateName, and numbers and dates that users append. It is empty for pods without a Job.
func (w *Work) series() string {
	name, ok := strings.CutPrefix(w.Owners.Owner, "Job/")
	if !ok {
		return ""
	}
	for before := ""; name != before; {
		before = name
		if n := len(name) - 6; n > 0 && (name[n] == '-' || name[n] == '.') && strings.Trim(name[n+1:], random) == "" {
			name = name[:n]
		}
		if rest := strings.TrimRight(name, "0123456789"); rest != name {
			name = strings.TrimRight(rest, "-._")
		}
	}
	return name
}

// ReadJobProfile returns the run times in the status of a JobProfile.
func ReadJobProfile(p *v1alpha1.JobProfile) (*RunTimes, error) {
	s := predict.State{Seen: int(p.Status.Runs), Outcomes: p.Status.Outcomes}
	for i := range p.Status.Groups {
		g := &p.Status.Groups[i]
		s.Groups = append(s.Groups, predict.Group{
			Level: int(g.Level), Owner: g.Owner, Seen: int(g.Runs), Last: int(g.Last), Unit: g.Unit, Bins: g.Bins,
			Weights: g.Weights,
			Request: sched.Resources{MilliCPU: g.MilliCPU, Memory: g.MemoryBytes, MilliGPU: g.MilliGPU},
		})
	}
	groups, err := predict.Restore(&s)
	return &RunTimes{groups: groups}, err
}

// EnoughRuns is the number of runs of a Job from which its run time is known.
const EnoughRuns = predict.Enough

// maxGroups is the maximum number of groups per level in a JobProfile, which limits its size to a few hundred kB.
const maxGroups = 100

// Write writes the run times to the status of a JobProfile.
func (r *RunTimes) Write(p *v1alpha1.JobProfile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.groups.State(maxGroups)
	p.Status.Runs, p.Status.Outcomes, p.Status.Groups = int64(s.Seen), s.Outcomes, nil
	for _, g := range s.Groups {
		p.Status.Groups = append(p.Status.Groups, v1alpha1.RunTimeGroup{
			Level: int32(g.Level), Owner: g.Owner, Runs: int64(g.Seen), Last: int64(g.Last), Unit: g.Unit, Bins: g.Bins,
			Weights: g.Weights, MilliCPU: g.Request.MilliCPU, MemoryBytes: g.Request.Memory,
			MilliGPU: g.Request.MilliGPU,
		})
	}
}

// Learn records the run time of a completed Job.
func (r *RunTimes) Learn(w *Work, ran time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups.Ended(w.similar(), ran)
}

// Of returns the distribution of the run times of similar Jobs, or nil if too few have completed, and the number of
// completed Jobs of the same series.
func (r *RunTimes) Of(w *Work) (runtimes *sched.Runtimes, runs int) {
	if r == nil {
		return nil, 0
	}
	like := w.similar()
	if like.Owner == "" {
		return nil, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.groups.Foresee(like)
}

// similar returns a job with the properties that similar Jobs share.
func (w *Work) similar() *sched.Job {
	return &sched.Job{Owner: w.series(), Request: sched.Resources{
		MilliCPU: w.request.MilliCPU, Memory: w.request.Memory, MilliGPU: 1000*w.request.GPU + w.request.MilliGPU,
	}}
}

// RunTimes returns the run times that were learnt in a namespace, or nil.
func (r *Rules) RunTimes(namespace string) *RunTimes { return r.runTimes[namespace] }

// FindDuration returns a finding if the stated duration of a workload is far from the run times of similar Jobs.
func (r *Rules) FindDuration(w *Work) (all []Finding) {
	const far = 2
	learnt, runs := r.RunTimes(w.Namespace).Of(w)
	stated := w.Marks.ExpectedDuration
	if learnt == nil || !w.StatesDuration() ||
		stated >= learnt.Quantile(0.1)/far && stated <= far*learnt.Quantile(0.9) {
		return nil
	}
	return []Finding{{
		Said: fmt.Sprintf("%s is %s, but similar Jobs usually run for %s", v1alpha1.AnnotationExpectedDuration,
			humanize.Rounded(stated), Usually(learnt, runs)),
		Mend: "correct it, or omit it to use the learnt run time",
	}}
}

// Usually describes the run times of similar Jobs.
func Usually(learnt *sched.Runtimes, runs int) string {
	return fmt.Sprintf("%s to %s (%s)", humanize.Rounded(learnt.Quantile(0.1)), humanize.Rounded(learnt.Quantile(0.9)),
		humanize.Count(runs, "run"))
}

// StatesDuration reports whether an annotation states the expected duration of the workload.
func (w *Work) StatesDuration() bool { return w.Marks.said&termDuration != 0 }
