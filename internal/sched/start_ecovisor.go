package sched

import (
	"cmp"
	"time"
)

// ecovisor implements the start rule "ecovisor" as in GAIA (based on Souza et al., ASPLOS 2023). A job runs while
// the signal is below the 30th percentile of its next 24 hours, and otherwise waits until its delay is exhausted.
// The signal is the carbon intensity if it has a weight, otherwise the price. The job is planned again at every
// step of the signal. The percentile is computed for the 24 hours from now on, while GAIA uses the 24 hours after
// submission. The job also runs if the signal does not fall below its current value within that day. The rule uses
// a limit and does not estimate a saving, so [Policy].MinSaving does not apply. In contrast to GAIA, a job is not
// suspended if the work that it repeats costs more than that saves.
func ecovisor(s *Snapshot, j *Job, o Outlook) (Window, Reason, time.Time) {
	series := o.signal()
	if series == nil { // constant cost
		return j.Window(s.Now), Reason{Kind: NothingToSave}, time.Time{}
	}
	const lowShare = 0.3
	var buffer [32]Piece
	limit, day := quantile(series, s.Now, s.Now.Add(Day), lowShare, buffer[:0])
	r := Reason{Kind: WithinThreshold, Present: series.At(s.Now), Threshold: limit, Unit: unitCarbon, Site: o.site}
	if o.carbon == nil {
		r.Unit = unitPrice
	}
	again := o.nextStep(s.Now, s.latest(j))
	if r.Present < limit || !less(day[0].Rate, r.Present) {
		return j.Window(s.Now), r, again
	}
	r.Kind, r.Latest = AboveThreshold, s.latest(j)
	if j.Running {
		r.Kind = SuspendedAbove
	}
	for t := range series.Steps(s.Now, r.Latest) {
		if series.Covers(t, t) && series.At(t) < limit {
			r.Until = t
			break
		}
	}
	if j.Running && !o.pays(j, cmp.Or(r.Until, r.Latest)) {
		return j.Window(s.Now), Reason{Kind: NothingToSave}, again
	}
	return j.Window(again), r, again
}

// pays reports whether suspending a running job until the given time saves more than the repeated work costs.
func (o *Outlook) pays(j *Job, until time.Time) bool {
	left := j.left()
	return j.RestartCost == 0 || o.Over(until, until.Add(left+j.RestartCost)) < o.Over(o.now, o.now.Add(left))
}
