package sched

import (
	"cmp"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Outlook is the cost of a unit of work over time at one site, based on the signals that have a weight. Beyond the
// end of the forecast the signals are assumed to repeat the values of 24 hours earlier. If less than a day is
// known, the mean of the known values is used instead, because an unknown signal is no reason to wait.
//
// With several sites, the outlook is for the site of the running job, or for the site with the lowest cost over the
// next day.
type Outlook struct {
	carbon, price *grid.Series // nil if the signal has no weight
	weights       Weights
	pue           float64 // PUE of the site for the job
	site          string  // name of the site if there are several
	now, end      time.Time
	short         bool    // whether less than a day is known
	mean          float64 // mean of the known values, used beyond end
}

// Day is the period after which an [Outlook] repeats its signals beyond the end of the forecast.
const Day = 24 * time.Hour

// Outlook returns the outlook for planning j, or the reason why there is nothing to plan.
func (s *Snapshot) Outlook(j *Job) (o Outlook, why ReasonKind, ok bool) {
	if why, ok = s.mayWait(j, s.latest(j)); !ok {
		return Outlook{}, why, false
	}
	if o, ok = s.Forecasts(j); !ok {
		return Outlook{}, NoFreshSignal, false
	}
	return o, NoOpinion, true
}

// Forecasts returns the outlook for the run of j, regardless of whether j may wait.
func (s *Snapshot) Forecasts(j *Job) (o Outlook, ok bool) {
	weights := s.Weights(j)
	sites := s.Known(j, weights.CountCarbon(), weights.CountPrice())
	if j.Running && len(s.Nodes) == 1 && s.Nodes[0].Site != nil { // ignore the signals of other sites
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
			o.site = site.Name
		}
	}
	return o, chosen != nil
}

// NewOutlook returns the outlook of a site as of now. The site must have a series for each signal with a weight. If
// no signal has a weight, the cost is the same at all times. The PUE is not set.
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
	if o.signal() == nil { // no signal has a weight: constant cost
		o.end = now.Add(Day)
	}
	if o.short = o.end.Sub(now) < Day; o.short {
		o.mean = o.known(now, o.end) / o.end.Sub(now).Seconds()
	}
	return o
}

// known returns the integral of the forecast cost. The interval must end by the end of the forecast.
func (o *Outlook) known(from, to time.Time) (sum float64) {
	if o.carbon != nil {
		sum = o.weights.Carbon * o.carbon.Integral(from, to)
	}
	if o.price != nil {
		sum += o.weights.Price * o.price.Integral(from, to)
	}
	return sum
}

// at returns the cost of a unit of work at the given time, which must be before the end of the forecast.
func (o *Outlook) at(t time.Time) (v float64) {
	if o.carbon != nil {
		v = o.weights.Carbon * o.carbon.At(t)
	}
	if o.price != nil {
		v += o.weights.Price * o.price.At(t)
	}
	return v
}

// Over returns the integral of the cost of a unit of work. The interval must not start before now.
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

// IgnoredSwing is the [Outlook.Swing] up to which the start rule "guarded" ignores signals. Measured on zones with a
// smaller swing, delays for their signals increased emissions.
const IgnoredSwing = 0.15

// Swing returns the range of the cost over the next day, relative to the highest cost.
func (o *Outlook) Swing() float64 {
	least, most := math.Inf(1), math.Inf(-1)
	for t, end := o.now, o.now.Add(Day); t.Before(end); {
		next := o.change(t, end)
		cost := o.Over(t, next) / next.Sub(t).Seconds()
		least, most = min(least, cost), max(most, cost)
		t = next
	}
	if most == least {
		return 0
	}
	return (most - least) / math.Abs(most)
}

// signal returns the signal for policies that follow a single signal, or nil if no signal has a weight.
func (o *Outlook) signal() *grid.Series { return cmp.Or(o.carbon, o.price) }

// nextStep returns the first time after t, but at most until, when a signal with a weight changes.
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

// change returns the first time after t, but at most until, when the cost may change. Beyond the end of the
// forecast the changes of the day before are repeated, or there are none if less than a day is known.
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

// slotLength is the interval at which policies plan a job again, and the resolution of their plans. Slots are as
// long as the steps of the signals, but not shorter than this, so that the cost of planning does not depend on the
// signals.
const slotLength = time.Hour

// slots returns the end of the current slot and the length of slots. Slots are aligned to the steps of the signal,
// and do not depend on the length of the history in the snapshot.
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

// slotOf returns the length of slots for a signal with the given step.
func slotOf(step time.Duration) time.Duration {
	if step%slotLength == 0 {
		return slotLength
	}
	return step * ((slotLength + step - 1) / step)
}

// prices appends the mean cost of a unit of work in each of the n slots from next on.
func (o *Outlook) prices(dst []float64, next time.Time, length time.Duration, n int) []float64 {
	seconds := length.Seconds()
	for range n {
		end := next.Add(length)
		dst = append(dst, o.Over(next, end)/seconds)
		next = end
	}
	return dst
}

// slack returns how much longer j may be delayed, according to its allowed delay, its completion deadline and the
// policy.
func (s *Snapshot) slack(j *Job) time.Duration {
	slack := s.Policy.AllowedDelay(j) - j.idle(s.Now)
	if !j.FinishBy.IsZero() {
		slack = min(slack, j.FinishBy.Sub(s.Now)-j.left())
	}
	return max(0, slack)
}

// latest returns the latest time until which j may make no progress. If the job has already started, the cost of a
// restart on the slowest node is subtracted, because the repeated work is added to the remaining work.
func (s *Snapshot) latest(j *Job) time.Time {
	slack := s.slack(j)
	if j.Running || j.Done > 0 {
		restart := time.Duration(min(float64(j.RestartCost)/s.Slowest(), float64(MaxDuration)))
		slack = max(0, slack-restart)
	}
	return s.Now.Add(slack)
}
