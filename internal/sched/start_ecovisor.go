package sched

import "time"

// ecovisor is the when "ecovisor", as GAIA has it (after Souza et al., ASPLOS 2023): a job runs while the signal,
// carbon intensity if that has a weight and else the price, is below its 30th percentile of the next 24 hours; else
// it uses up its delay, and when that is gone it runs. It is asked again at every step of the signal. The percentile
// is that of the day from then on, where GAIA keeps the one of the submission; and where nothing in that day is lower
// than now, the job runs. It goes by a limit and reckons no saving, so there is none that [Policy].MinSaving could be
// compared with.
func ecovisor(s *Snapshot, j *Job, o Outlook) (Window, Reason, time.Time) {
	series := o.signal()
	if series == nil { // all times are alike
		return j.Window(s.Now), Reason{Kind: NothingToSave}, time.Time{}
	}
	const lowShare = 0.3
	var buffer [32]Piece
	limit, day := quantile(series, s.Now, s.Now.Add(Day), lowShare, buffer[:0])
	r := Reason{Kind: WithinThreshold, Present: series.At(s.Now), Threshold: limit, Unit: unitCarbon}
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
	return j.Window(again), r, again
}
