package sched

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// rolling implements the start rule "rolling" for jobs with a known distribution of lengths that run to completion
// once started. At the start of every slot, a job starts unless a later start has a lower expected cost, over all
// lengths that the job may have. The expected cost of a start at t is
//
//	∫ z(t+x)·S(x) dx
//
// for the forecast z and the fraction S(x) of jobs that run longer than x. Starts are considered at the beginning
// of every slot and at the end of the delay. For a job of known length, starts that make the job end with a slot
// are also considered. The choice is then exact for the given signals.
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
	starts := 0 // number of starts at the beginning of a slot
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
	// The end of the delay is in the slot after the last start.
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

// rollingKnown chooses the cheapest window for a job of known length, and repeats the choice in every slot. Like
// [cheapestWindow], it only considers windows that start or end at a step.
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
