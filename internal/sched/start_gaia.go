package sched

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// The start-time policies of GAIA (Hanafy et al., ASPLOS 2024). They choose once, and know of a job's length only the
// mean of its kind; starts are tried every hour from now on. Costs and lengths are exact, where GAIA counts slots of
// five seconds.

// lowestSlot is the when "lowest-slot": the first instant of least intensity, of all until the latest start.
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

// lowestWindow is the when "lowest-window": of the starts every hour, the first of least emissions over the mean
// length.
func lowestWindow(s *Snapshot, j *Job) (Window, Reason) {
	return hourly(s, j, func(now, later float64, _ time.Duration) float64 { return now - later })
}

// carbonTime is the when "carbon-time": of the starts every hour, the first that saves most for each hour until it
// would be done.
func carbonTime(s *Snapshot, j *Job) (Window, Reason) {
	return hourly(s, j, func(now, later float64, until time.Duration) float64 {
		return (now - later) / until.Seconds()
	})
}

// hourly tries to start now, in an hour, and so on until the latest start. The merit of a start is that of the
// emissions now and then, and the time until it is done.
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

// less reports whether a is smaller than b by more than what the digits of integrals differ by.
func less(a, b float64) bool { return a < b-Tolerance*max(math.Abs(a), math.Abs(b)) }

// atOnce starts a job now.
func atOnce(s *Snapshot, j *Job, why ReasonKind) (Window, Reason) {
	return j.Window(s.Now), Reason{Kind: why}
}

// choose holds a job until a start, or runs it if that is now, by what it costs now and later.
func (o *Outlook) choose(s *Snapshot, j *Job, start time.Time, costNow, costLater float64) (Window, Reason) {
	if saved := costNow - costLater; !start.After(s.Now) || saved <= max(Tolerance,
		s.Policy.MinSaving)*math.Abs(costNow) {
		return atOnce(s, j, NothingToSave)
	}
	return j.Window(start), o.later(s, j, start, costNow, costLater)
}

// later says what a hold is expected to save.
func (o *Outlook) later(s *Snapshot, j *Job, until time.Time, costNow, costLater float64) Reason {
	r := Reason{
		Kind: CheaperLater, Until: until, Latest: s.latest(j),
		Saving: (costNow - costLater) / max(math.Abs(costNow), math.SmallestNonzeroFloat64),
	}
	if j.Running {
		r.Kind = Suspended
	}
	// Where both have a weight, what is planned with is their sum: which part of it is carbon and which money is not
	// known.
	amount := o.pue * float64(expectedPower(j)) * (costNow - costLater) / energy.JoulesPerKWh
	switch {
	case o.price == nil:
		r.Carbon = energy.Grams(amount / o.weights.Carbon)
	case o.carbon == nil:
		r.Money = grid.Money(amount / o.weights.Price)
	}
	return r
}
