package sched

import (
	"time"
)

// StartFunc returns when a job should start. A start after s.Now holds it. It is asked once.
type StartFunc func(s *Snapshot, j *Job) (Window, Reason)

// rollingFunc returns when a job should start or go on, and when it is to be asked about again if that is later than
// now. The answer holds until then.
type rollingFunc func(s *Snapshot, j *Job, o Outlook) (w Window, r Reason, again time.Time)

// StartRule is a when: either Start or roll is set.
type StartRule struct {
	Start StartFunc
	roll  rollingFunc
	Scale scalingRule // of elastic jobs, instead; nil: they run on their least replicas

	Holds       bool // ever puts off a start
	Interrupts  bool // may suspend what runs, if that is interruptible
	Clairvoyant bool // is to be told the true length of a job
	Together    bool // plans all jobs of a queue together
}

// StartRules maps names, which follow the plus sign in the name of a strategy, to the rules that say when jobs start.
var StartRules = map[string]StartRule{
	"now":           {Start: StartNow}, // a job that asks for it does not wait, not for a budget either
	"threshold":     {Start: belowThreshold, Holds: true},
	"window":        {Start: cheapestWindow, Holds: true},
	"plan":          {Start: cheapestWindow, Holds: true, Interrupts: true, Together: true}, // of one job alone
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

// Ask returns what the rule says of a job. What the rule would say of the time after a budget is asked then, on the
// signals that are known then. What runs goes on, unless the rule may suspend it and the job allows that.
func (u *StartRule) Ask(s *Snapshot, j *Job) (w Window, r Reason, again time.Time) {
	suspends := u.Interrupts && j.Interruptible && !u.Together // alone, a job gets a start
	if j.Running && !suspends {
		w, r = StartNow(s, j)
		return w, r, time.Time{}
	}
	if u.Holds && !j.Running {
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
		again = time.Time{} // it runs to its end
	}
	return w, r, again
}
