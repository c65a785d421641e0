package sched

import (
	"time"
)

// StartFunc returns the window in which a job should run. A start after s.Now holds the job. It is called once per
// job.
type StartFunc func(s *Snapshot, j *Job) (Window, Reason)

// rollingFunc returns the window in which a job should start or resume, and the time when the job must be planned
// again if this is later than now. The result is valid until then.
type rollingFunc func(s *Snapshot, j *Job, o Outlook) (w Window, r Reason, again time.Time)

// StartRule is a rule for start times. Either Start or roll is set.
type StartRule struct {
	Start StartFunc
	roll  rollingFunc
	Scale scalingRule // for elastic jobs; if nil, they run on their minimum number of replicas

	Holds       bool // may delay a start
	Interrupts  bool // may suspend running jobs that are interruptible
	Clairvoyant bool // requires the true length of a job
	Together    bool // plans all jobs of a queue jointly
	// Guarded restricts joint plans to holds that are expected to pay off and to start in time, see the start rule
	// "guarded".
	Guarded bool
	// Longest is the maximum delay, regardless of signals, in a joint plan that only saves energy; 0 for joint plans
	// that use signals.
	Longest time.Duration
}

// StartRules contains the start rules by name. The name follows the plus sign in the name of a strategy.
var StartRules = map[string]StartRule{
	"now":           {Start: StartNow}, // never delays a job, not even for a budget
	"threshold":     {Start: belowThreshold, Holds: true},
	"window":        {Start: cheapestWindow, Holds: true},
	"plan":          {Start: cheapestWindow, Holds: true, Interrupts: true, Together: true}, // for a single job
	"guarded":       {Start: guardedWindow, Holds: true, Together: true, Guarded: true},
	"capacity":      {Start: forCapacity, Holds: true, Together: true, Longest: 15 * time.Minute},
	"price":         {Start: cheapestTariff, Holds: true},
	"lowest-slot":   {Start: lowestSlot, Holds: true},
	"lowest-window": {Start: lowestWindow, Holds: true},
	"carbon-time":   {Start: carbonTime, Holds: true},
	"rolling":       {roll: rolling, Holds: true},
	"ecovisor":      {roll: ecovisor, Holds: true, Interrupts: true},
	"wait-awhile":   {roll: waitAwhile, Holds: true, Interrupts: true, Clairvoyant: true},
	"residual":      {roll: residual, Holds: true, Interrupts: true},
	"carbon-scaler": {roll: residual, Scale: carbonScaler, Holds: true, Interrupts: true},
}

// Ask applies the rule to a job. While a budget is exhausted, the rule is only applied to a job that has not run yet
// after the budget allows new work, with the signals known by then. A running job continues unless the rule may suspend
// it and the job is interruptible.
func (u *StartRule) Ask(s *Snapshot, j *Job) (w Window, r Reason, again time.Time) {
	suspends := u.Interrupts && j.Interruptible && !u.Together // planned alone, a job only gets a start
	if j.Running && !suspends {
		w, r = StartNow(s, j)
		return w, r, time.Time{}
	}
	if u.Holds && !j.Running && j.Done == 0 {
		if w, r, held := s.Closed(j); held {
			if u.roll != nil {
				again = w.Start
			}
			return w, r, again
		}
	}
	if u.roll == nil {
		w, r = u.Start(s, j)
		return w, r, time.Time{}
	}
	o, why, ok := s.Outlook(j)
	if !ok {
		w, r = atOnce(s, j, why)
		return w, r, time.Time{}
	}
	w, r, again = u.roll(s, j, o)
	if !suspends && !w.Start.After(s.Now) {
		again = time.Time{} // the job runs to completion
	}
	return w, r, again
}
