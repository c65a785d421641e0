package sched

import (
	"cmp"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Outlook is what a unit of work costs over time at the one site that a job is planned on, from the signals that have
// a weight. Beyond the end of their forecast they are taken to be what they are 24 hours earlier; where less than a
// day is known, their mean, since an unknown signal is no reason to wait.
//
// Where there are several sites, it is the one that is cheapest over the next day, or the one that the job runs at.
type Outlook struct {
	carbon, price *grid.Series // nil: of no weight
	weights       Weights
	pue           float64 // of the job's energy there
	now, end      time.Time
	short         bool    // less than a day is known
	mean          float64 // of what is known, beyond its end
}

// Day is the period with which an [Outlook] repeats its signals beyond the end of their forecast.
const Day = 24 * time.Hour

// Outlook returns what is known for planning j, or why there is nothing to plan.
func (s *Snapshot) Outlook(j *Job) (o Outlook, why ReasonKind, ok bool) {
	if why, ok = s.mayWait(j, s.latest(j)); !ok {
		return Outlook{}, why, false
	}
	if o, ok = s.Forecasts(j); !ok {
		return Outlook{}, NoFreshSignal, false
	}
	return o, NoOpinion, true
}

// Forecasts returns what is known of the time in which j runs, whether it may wait or not.
func (s *Snapshot) Forecasts(j *Job) (o Outlook, ok bool) {
	weights := s.Weights(j)
	sites := s.Known(j, weights.CountCarbon(), weights.CountPrice())
	if j.Running && len(s.Nodes) == 1 && s.Nodes[0].Site != nil { // what is known of other places says nothing of it
		sites = sitesThat(sites, func(site *Site) bool { return site == s.Nodes[0].Site })
	}
	var chosen *Site
	var least float64
	for _, site := range sites {
		here := NewOutlook(site, weights, s.Now)
		here.pue = site.pueFor(j)
		if len(sites) == 1 {
			return here, true
		}
		cost := site.pue() * here.Over(s.Now, s.Now.Add(Day))
		if chosen == nil || cost < least || cost == least && site.Name < chosen.Name {
			o, chosen, least = here, site, cost
		}
	}
	return o, chosen != nil
}

// NewOutlook returns the outlook of a site at the given present. The site must have a series of each signal that has a
// weight; without a weight on either, all times cost the same. The PUE is not set.
func NewOutlook(site *Site, weights Weights, now time.Time) Outlook {
	o := Outlook{weights: weights, now: now}
	if weights.CountCarbon() {
		o.carbon = site.Carbon.Series
		o.end = o.carbon.End()
	}
	if weights.CountPrice() {
		o.price = site.Price.Series
		if end := o.price.End(); o.carbon == nil || end.Before(o.end) {
			o.end = end
		}
	}
	if o.signal() == nil { // neither has a weight: all times are alike
		o.end = now.Add(Day)
	}
	if o.short = o.end.Sub(now) < Day; o.short {
		o.mean = o.known(now, o.end) / o.end.Sub(now).Seconds()
	}
	return o
}

// known integrates what is forecast.
func (o *Outlook) known(from, to time.Time) (sum float64) {
	if o.carbon != nil {
		sum = o.weights.Carbon * o.carbon.Integral(from, to)
	}
	if o.price != nil {
		sum += o.weights.Price * o.price.Integral(from, to)
	}
	return sum
}

// at is the cost of a unit of work at an instant before the end.
func (o *Outlook) at(t time.Time) (v float64) {
	if o.carbon != nil {
		v = o.weights.Carbon * o.carbon.At(t)
	}
	if o.price != nil {
		v += o.weights.Price * o.price.At(t)
	}
	return v
}

// Over integrates the cost of a unit of work from now or later.
func (o *Outlook) Over(from, to time.Time) float64 {
	switch {
	case !to.After(o.end):
		return o.known(from, to)
	case from.Before(o.end):
		return o.known(from, o.end) + o.Over(o.end, to)
	case o.short:
		return o.mean * to.Sub(from).Seconds()
	}
	back := (from.Sub(o.end)/Day + 1) * Day
	return o.Over(from.Add(-back), to.Add(-back))
}

// signal is the one that policies follow that know only one; nil: none has a weight.
func (o *Outlook) signal() *grid.Series { return cmp.Or(o.carbon, o.price) }

// nextStep returns the first instant after t, and not after until, at which something that has a weight changes; else
// until.
func (o *Outlook) nextStep(t, until time.Time) time.Time {
	for _, series := range [2]*grid.Series{o.carbon, o.price} {
		if series == nil {
			continue
		}
		for step := range series.Steps(t, until) {
			until = step
			break
		}
	}
	return until
}

// change is the first instant after t, and not after until, at which the cost may change, in what is forecast and
// beyond: there it changes as it does whole days before, or not at all where less than a day is known.
func (o *Outlook) change(t, until time.Time) time.Time {
	switch {
	case t.Before(o.end):
		return o.nextStep(t, timeutil.Earlier(until, o.end))
	case o.short:
		return until
	}
	back := (t.Sub(o.end)/Day + 1) * Day
	return timeutil.Earlier(until, o.nextStep(t.Add(-back), o.end).Add(back))
}

// slotLength is how often policies that look at a job again do so, and how finely they plan: that of the signals, but
// not more often than this, so that what they cost does not depend on the signals.
const slotLength = time.Hour

// slots returns when the present slot ends, and how long slots are. They lie on steps of the signal and are the same
// however much of its past a snapshot has.
func (o *Outlook) slots() (next time.Time, length time.Duration) {
	series := o.signal()
	if series == nil {
		return o.now.Add(slotLength), slotLength
	}
	step := series.Step()
	length = slotOf(step)
	now := o.now.UnixNano()
	past := (now - series.Start().UnixNano()%int64(step)) % int64(length)
	return o.now.Add(length - time.Duration(past)), length
}

// slotOf returns how long slots are for signals of a step.
func slotOf(step time.Duration) time.Duration {
	if step%slotLength == 0 {
		return slotLength
	}
	return step * ((slotLength + step - 1) / step)
}

// prices appends the mean cost of a unit of work in so many slots from next on.
func (o *Outlook) prices(dst []float64, next time.Time, length time.Duration, n int) []float64 {
	seconds := length.Seconds()
	for range n {
		end := next.Add(length)
		dst = append(dst, o.Over(next, end)/seconds)
		next = end
	}
	return dst
}

// slack is how much longer j may be kept from working, by its own word, by the deadline of its finish and by the
// policy.
func (s *Snapshot) slack(j *Job) time.Duration {
	allowed := j.AllowedDelay
	if s.Policy.MaxDelay > 0 {
		allowed = min(allowed, s.Policy.MaxDelay)
	}
	slack := allowed - j.idle(s.Now)
	if !j.FinishBy.IsZero() {
		slack = min(slack, j.FinishBy.Sub(s.Now)-j.left())
	}
	return max(0, slack)
}

// latest is the last instant to which j may be put off, if it does nothing until then. Of one that has begun, as much
// slack is kept as going on costs on the slowest node: that is done on top of what is left.
func (s *Snapshot) latest(j *Job) time.Time {
	slack := s.slack(j)
	if j.Running || j.Done > 0 {
		restart := time.Duration(min(float64(j.RestartCost)/s.Slowest(), float64(MaxDuration)))
		slack = max(0, slack-restart)
	}
	return s.Now.Add(slack)
}
