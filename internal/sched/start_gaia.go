package sched

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// This file implements the start rules of GAIA (Hanafy et al., ASPLOS 2024). They choose a start once, and only use
// the mean length of jobs of a kind. They consider a start every hour from now on. Costs and lengths are exact,
// while GAIA counts slots of five seconds.

// lowestSlot implements the start rule "lowest-slot": the first time with the lowest intensity until the latest
// start.
func lowestSlot(s *Snapshot, j *Job) (Window, Reason) {
	o, why, ok := s.Outlook(j)
	if !ok {
		return atOnce(s, j, why)
	}
	start, least := s.Now, o.at(s.Now)
	for t, latest := s.Now, s.latest(j); t.Before(latest); {
		if t = o.nextStep(t, latest); t.Before(o.end) {
			if v := o.at(t); less(v, least) {
				start, least = t, v
			}
		}
	}
	length := j.Remaining().Seconds()
	return o.choose(s, j, start, o.at(s.Now)*length, least*length)
}

// lowestWindow implements the start rule "lowest-window": the first of the hourly starts with the lowest emissions
// over the mean length of the job.
func lowestWindow(s *Snapshot, j *Job) (Window, Reason) {
	return hourly(s, j, func(now, later float64, _ time.Duration) float64 { return now - later })
}

// carbonTime implements the start rule "carbon-time": the first of the hourly starts with the highest saving per
// hour until completion.
func carbonTime(s *Snapshot, j *Job) (Window, Reason) {
	return hourly(s, j, func(now, later float64, until time.Duration) float64 {
		return (now - later) / until.Seconds()
	})
}

// hourly considers starts now, in one hour, and so on until the latest start, and chooses the one with the highest
// merit. The arguments of merit are the cost of starting now and later, and the time until completion.
func hourly(s *Snapshot, j *Job, merit func(now, later float64, until time.Duration) float64) (Window, Reason) {
	o, why, ok := s.Outlook(j)
	if !ok {
		return atOnce(s, j, why)
	}
	length := j.Remaining()
	if j.Runtimes != nil && j.Done <= 0 {
		length = j.Runtimes.Mean()
	}
	if length <= 0 {
		return atOnce(s, j, NothingToSave)
	}
	now := o.Over(s.Now, s.Now.Add(length))
	best, chosen, least := 0.0, s.Now, now
	for wait, slack := time.Hour, s.latest(j).Sub(s.Now); wait <= slack; wait += time.Hour {
		start := s.Now.Add(wait)
		later := o.Over(start, start.Add(length))
		if m := merit(now, later, wait+length); less(later, now) && m > best+Tolerance*math.Abs(best) {
			best, chosen, least = m, start, later
		}
	}
	return o.choose(s, j, chosen, now, least)
}

// less reports whether a is smaller than b by more than the rounding errors of integrals.
func less(a, b float64) bool { return a < b-Tolerance*max(math.Abs(a), math.Abs(b)) }

// atOnce starts a job now.
func atOnce(s *Snapshot, j *Job, why ReasonKind) (Window, Reason) {
	return j.Window(s.Now), Reason{Kind: why}
}

// choose holds a job until start if this saves enough compared with starting now, and otherwise runs it now.
func (o *Outlook) choose(s *Snapshot, j *Job, start time.Time, costNow, costLater float64) (Window, Reason) {
	if saved := costNow - costLater; !start.After(s.Now) || saved <= max(Tolerance,
		s.Policy.MinSaving)*math.Abs(costNow) {
		return j.Window(s.Now), Reason{Kind: NothingToSave, Site: o.site}
	}
	return j.Window(start), o.later(s, j, start, costNow, costLater)
}

// later returns the reason for a hold, including its expected saving.
func (o *Outlook) later(s *Snapshot, j *Job, until time.Time, costNow, costLater float64) Reason {
	r := Reason{
		Kind: CheaperLater, Until: until, Latest: s.latest(j), Site: o.site,
		Saving: (costNow - costLater) / max(math.Abs(costNow), math.SmallestNonzeroFloat64),
	}
	if j.Running {
		r.Kind = Suspended
	}
	// If both signals have a weight, only their weighted sum is known, so carbon and money cannot be reported
	// separately.
	amount := o.pue * float64(expectedPower(j)) * (costNow - costLater) / energy.JoulesPerKWh
	switch {
	case o.price == nil:
		r.Carbon = energy.Grams(amount / o.weights.Carbon)
	case o.carbon == nil:
		r.Money = grid.Money(amount / o.weights.Price)
	}
	return r
}
