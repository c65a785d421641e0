package sched

import (
	"slices"
	"time"
)

// startRule returns when a job should start. A start after s.Now holds it. It is asked once.
type startRule func(s *Snapshot, j *Job) (Window, Reason)

// rollingRule returns when a job should start or go on, and when it is to be asked about again if that is later than
// now. The answer holds until then.
type rollingRule func(s *Snapshot, j *Job, o outlook) (w Window, r Reason, again time.Time)

// rule is a when: either start or roll is set.
type rule struct {
	start startRule
	roll  rollingRule
	scale scalingRule // of elastic jobs, instead; nil: they run on their least replicas

	holds       bool // ever puts off a start
	interrupts  bool // may suspend what runs, if that is interruptible
	clairvoyant bool // is to be told the true length of a job
	together    bool // plans all jobs of a queue together
}

var when = map[string]rule{
	"now":           {start: startNow}, // a job that asks for it does not wait, not for a budget either
	"threshold":     {start: belowThreshold, holds: true},
	"window":        {start: cheapestWindow, holds: true},
	"plan":          {start: cheapestWindow, holds: true, interrupts: true, together: true}, // of one job alone
	"price":         {start: cheapestTariff, holds: true},
	"lowest-slot":   {start: lowestSlot, holds: true},
	"lowest-window": {start: lowestWindow, holds: true},
	"carbon-time":   {start: carbonTime, holds: true},
	"rolling":       {roll: rolling, holds: true},
	"ecovisor":      {roll: ecovisor, holds: true, interrupts: true},
	"wait-awhile":   {roll: waitAwhile, holds: true, interrupts: true, clairvoyant: true},
	"residual":      {roll: residual, holds: true, interrupts: true},
	"carbon-scaler": {roll: residual, scale: carbonScaler, holds: true, interrupts: true},
}

// ask returns what the rule says of a job. What the rule would say of the time after a budget is asked then, on the
// signals that are known then. What runs goes on, unless the rule may suspend it and the job allows that.
func (u *rule) ask(s *Snapshot, j *Job) (w Window, r Reason, again time.Time) {
	suspends := u.interrupts && j.Interruptible && !u.together // alone, a job gets a start
	if j.Running && !suspends {
		w, r = startNow(s, j)
		return w, r, time.Time{}
	}
	if u.holds && !j.Running {
		if w, r, held := s.closed(j); held {
			if u.roll != nil {
				again = w.Start
			}
			return w, r, again
		}
	}
	if u.roll == nil {
		w, r = u.start(s, j)
		return w, r, time.Time{}
	}
	o, why, ok := s.outlook(j)
	if !ok {
		w, r = atOnce(s, j, why)
		return w, r, time.Time{}
	}
	w, r, again = u.roll(s, j, o)
	if !suspends && !w.Start.After(s.Now) {
		again = time.Time{} // it runs to its end
	}
	return w, r, again
}

// Holds reports whether g ever puts off a start.
func (g *Greedy) Holds() bool { return g.when.holds }

// Interrupts reports whether g may suspend jobs that run and are interruptible. The others start when it says and run
// to their end.
func (g *Greedy) Interrupts() bool { return g.when.interrupts }

// Scales reports whether g chooses, anew as they go, on how many replicas elastic jobs run.
func (g *Greedy) Scales() bool { return g.when.scale != nil || g.when.together }

// Clairvoyant reports whether g is meant to be told how long jobs really run, as a yardstick for those that are not.
func (g *Greedy) Clairvoyant() bool { return g.when.clairvoyant }

// Families returns the names of the whens that start a job and let it run to its end, and of those that may suspend it.
// Savings are compared within a family.
func Families() (starting, suspending []string) {
	for name, rule := range when {
		if rule.interrupts {
			suspending = append(suspending, name)
		} else {
			starting = append(starting, name)
		}
	}
	slices.Sort(starting)
	slices.Sort(suspending)
	return starting, suspending
}
