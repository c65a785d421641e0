package sched

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Closed holds a job that may wait while its budget is exhausted. The job is held until new work may start again,
// but at most until its latest start, which takes precedence over every budget. No signal is required.
func (s *Snapshot) Closed(j *Job) (w Window, r Reason, held bool) {
	if !s.Policy.Closed.After(s.Now) || !s.Throttles(j) {
		return Window{}, Reason{}, false
	}
	latest := s.latest(j)
	until := timeutil.Earlier(s.Policy.Closed, latest)
	return j.Window(until), Reason{Kind: BudgetUsedUp, Until: until, Latest: latest, Budget: s.Policy.Budget}, true
}

// usedUp describes a hold because of a budget.
func (r *Reason) usedUp() string {
	name := "the energy budget"
	if r.Budget != "" {
		name += " " + r.Budget
	}
	if !r.Until.Before(r.Latest) {
		return "held until " + r.Latest.UTC().Format(time.RFC3339) + ", its latest start: " + name + " is exhausted"
	}
	return "held until " + r.Until.UTC().Format(time.RFC3339) + ": " + name + " is exhausted until then" +
		r.byLatest("starts")
}

// Throttles reports whether j may be delayed further.
func (s *Snapshot) Throttles(j *Job) bool {
	return !j.Released && j.AllowedDelay > 0 && s.latest(j).After(s.Now)
}

// Throttled holds a job in the queue until the intensity changes, but at most until its latest start.
func (s *Snapshot) Throttled(j *Job, quota int64) Decision {
	latest := s.latest(j)
	until := latest
	series := s.Sites[0].Carbon.Series
	for t := range series.Steps(s.Now, latest) {
		until = t
		break
	}
	return Decision{Job: j.ID, Window: j.Window(until), Again: until, Reason: Reason{
		Kind: QuotaUsedUp, Until: until, Latest: latest, Cores: quota / 1000, Present: series.At(s.Now),
		Unit: unitCarbon,
	}}
}
