package sched

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// rolling is the when "rolling", for jobs of which only a distribution of lengths is known and that run to their end
// once they have started: at the beginning of every slot, a job starts unless a later start is expected to cost less,
// over all lengths that it may have. A start at t costs
//
//	∫ z(t+x)·S(x) dx
//
// for the forecast z and the share S(x) of jobs that run for longer than x. Starts are tried at the beginning of
// every slot and at the end of the delay; a job whose length is known also such that it ends with a slot, which makes
// the choice exact for the signals given.
func rolling(s *Snapshot, j *Job, o Outlook) (Window, Reason, time.Time) {
	if j.Runtimes == nil {
		return rollingKnown(s, j, o)
	}
	next, slot := o.slots()
	slack, first := s.latest(j).Sub(s.Now), next.Sub(s.Now)
	life := j.lifetime(slot)
	var workBuffer [maxRunSlots + 1]float64
	var priceBuffer [256]float64
	work := life.work(workBuffer[:0], j.Done, slot)
	starts := 0 // at the beginning of a slot
	if slack > first {
		starts = int((slack-first-1)/slot) + 1
	}
	z := append(priceBuffer[:0], o.Over(s.Now, next)/first.Seconds())
	z = o.prices(z, next, slot, starts+len(work)+2)

	costNow := life.costFrom(z, j.Done, first, slot)
	start, least := s.Now, costNow
	for k := range starts {
		cost := 0.0
		for i, w := range work {
			cost += z[1+k+i] * w
		}
		if less(cost, least) {
			start, least = next.Add(time.Duration(k)*slot), cost
		}
	}
	// The end of the delay lies in the slot after the last start.
	rest := first - slack
	if starts > 0 {
		rest = next.Add(time.Duration(starts) * slot).Sub(s.latest(j))
	}
	if cost := life.costFrom(z[starts:], j.Done, rest, slot); less(cost, least) {
		start, least = s.latest(j), cost
	}
	w, r := o.choose(s, j, start, costNow, least)
	return w, r, timeutil.Earlier(next, s.latest(j))
}

// rollingKnown chooses the window of least cost for a job whose length is known, anew at every slot. As
// [cheapestWindow] it only tries windows one end of which meets a step.
func rollingKnown(s *Snapshot, j *Job, o Outlook) (Window, Reason, time.Time) {
	length := j.Remaining()
	if length <= 0 {
		return j.Window(s.Now), Reason{Kind: NothingToSave}, time.Time{}
	}
	latest := s.latest(j)
	costNow := o.Over(s.Now, s.Now.Add(length))
	start, least := s.Now, costNow
	try := func(t time.Time) {
		if cost := o.Over(t, t.Add(length)); less(cost, least) || t.Before(start) && !less(least, cost) {
			start, least = t, cost
		}
	}
	for t := s.Now; t.Before(latest); {
		t = o.change(t, latest)
		try(t)
	}
	for t, end := s.Now.Add(length), latest.Add(length); t.Before(end); {
		t = o.change(t, end)
		try(t.Add(-length))
	}
	w, r := o.choose(s, j, start, costNow, least)
	next, _ := o.slots()
	if !w.Start.After(s.Now) {
		return w, r, time.Time{}
	}
	return w, r, timeutil.Earlier(next, w.Start)
}
