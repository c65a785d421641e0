package sched

import (
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// scalingRule returns the window and the number of replicas of an elastic job, and the time when it must be planned
// again. The parameter room is the number of replicas that fit now.
type scalingRule func(s *Snapshot, j *Job, room int) (w Window, r Reason, again time.Time, replicas int)

// carbonScaler implements the start rule "carbon-scaler" for elastic jobs (Hanafy et al., SIGMETRICS 2024). The
// remaining work of a job is assigned to replicas and times as in [Scale], based on the current forecast, and with
// at most as many replicas now as there is capacity for. The part of this plan for the current time is applied. The
// job is planned again when that part ends, and at the latest in the next slot.
//
// A job finishes within its allowed delay plus its run time on the minimum number of replicas. If its capacity is
// assured, it can rely on more replicas to finish in time, and pause for longer than its delay. Otherwise other
// jobs may use the capacity, so the progress of the job never falls behind a start on the minimum number of
// replicas at the latest start. If that is too late for its FinishBy, it runs at least on the number of replicas that
// are required from now on.
func carbonScaler(s *Snapshot, j *Job, room int) (Window, Reason, time.Time, int) {
	least := j.Scaling.Least
	left := j.left()
	run := func(r Reason, again time.Time, replicas int) (Window, Reason, time.Time, int) {
		for replicas < room && s.Now.Add(time.Duration(float64(left)/j.Scaling.Rate(replicas))).After(j.FinishBy) &&
			!j.FinishBy.IsZero() {
			replicas++
		}
		return Window{s.Now, s.Now.Add(left)}, r, again, replicas
	}
	o, ok := s.Forecasts(j)
	if !ok {
		return run(Reason{Kind: NoFreshSignal}, s.Now.Add(slotLength), least)
	}
	next, _ := o.slots()
	work, until, slack := s.promise(j, left)
	if left <= 0 || !until.After(s.Now) { // there is no work, or the job is late
		return run(Reason{Kind: DelayUsedUp}, next, room)
	}
	a := Allotment{Scaling: j.Scaling, Pieces: o.pieces(nil, until), Room: []int{room}}
	due := func(i int) float64 {
		if j.RoomAssured {
			return 0
		}
		return (a.Pieces[i].End.Sub(s.Now) - slack).Seconds()
	}
	a.Fill(due, work.Seconds())
	plan := a.Stretches(spareTime)
	now, change := plan[0].Replicas, plan[0].End
	for _, p := range plan[1:] {
		if p.Replicas != now {
			break
		}
		change = p.End
	}
	// Another pause repeats work, so it must cost less than the minimum number of replicas for the rest of the slot. A
	// job that would be paused again is resumed later.
	if first, again := a.Pieces[0], (work + j.RestartCost).Seconds(); j.RestartCost > 0 && j.Done > 0 {
		done := min(work, first.End.Sub(first.Start)).Seconds()
		stay := float64(least)*first.Rate*done + a.later(due, done, work.Seconds()-done)
		switch {
		case now == 0 && j.Running && stay <= a.later(due, 0, again):
			return run(Reason{Kind: NothingToSave}, next, least)
		case now > 0 && !j.Running && change.Before(first.End) && plan[1].Replicas == 0 && due(0) <= 0 &&
			a.later(due, 0, work.Seconds()) < stay:
			now, change = 0, first.End
		}
	}
	if now > 0 {
		return run(Reason{Kind: Cheapest}, timeutil.Earlier(next, change), now)
	}
	costNow, costLater := o.Over(s.Now, s.Now.Add(work)), a.cost/float64(least)
	few := slack > 0 // the minimum number of replicas is sufficient
	if !few {        // compared with steady work until the deadline
		costNow = o.Over(s.Now, until) * work.Seconds() / until.Sub(s.Now).Seconds()
	}
	if j.Released || few && costNow-costLater <= max(Tolerance, s.Policy.MinSaving)*math.Abs(costNow) {
		// The job may rely on more replicas from then on to finish in time.
		return run(Reason{Kind: NothingToSave}, timeutil.Earlier(next, change), least)
	}
	why := o.later(s, j, change, costNow, costLater)
	if why.Latest = s.Now.Add(slack); j.RoomAssured {
		why.Latest = until.Add(-time.Duration(float64(work) / j.Scaling.Rate(j.Scaling.Most())))
	}
	return Window{change, change.Add(left)}, why, timeutil.Earlier(next, change), 0
}

// later returns the cost of the given work after the first piece, in which done seconds of the work that is due are
// done.
func (a *Allotment) later(due func(i int) float64, done, work float64) float64 {
	b := Allotment{Scaling: a.Scaling, Pieces: a.Pieces[1:]}
	if b.Fill(func(i int) float64 { return due(i+1) - done }, work) > 1e-9*work {
		return math.Inf(1)
	}
	return b.cost
}

// spareTime is added to a partially used slot, so that no work remains because of rounding.
const spareTime = 2 * time.Millisecond

// workLeft returns the expected remaining run time of j on its minimum number of replicas.
func (j *Job) workLeft() time.Duration {
	if j.Runtimes != nil {
		return j.Runtimes.Residual(j.Done)
	}
	return max(0, j.Duration-j.Done)
}

// promise returns the remaining work of an elastic job, its deadline, and how long it may pause if it then runs on
// its minimum number of replicas. The cost of a restart after a pause is reserved.
func (s *Snapshot) promise(j *Job, left time.Duration) (work time.Duration, until time.Time, slack time.Duration) {
	until = j.Submitted.Add(s.Policy.AllowedDelay(j) + j.Done + left)
	if !j.FinishBy.IsZero() {
		until = timeutil.Earlier(until, j.FinishBy)
	}
	work = left
	switch {
	case j.Running:
		until = until.Add(-j.RestartCost)
	case j.Done > 0:
		work += j.RestartCost
	}
	slack = max(0, until.Sub(s.Now)-work)
	if !j.RoomAssured { // a late job runs at least on its minimum number of replicas
		until = s.Now.Add(slack + work)
	}
	return work, until, slack
}

// Elastic is a job that can run on a variable number of replicas.
type Elastic struct {
	From, Until time.Time     // interval in which the job runs
	Work        time.Duration // remaining work, as run time on the minimum number of replicas
	Scaling
}

// Validate returns an error if the elastic job is invalid.
func (e *Elastic) Validate() error {
	if e.Work <= 0 || !e.Until.After(e.From) {
		return fmt.Errorf("elastic job with work of %v between %s and %s: want positive work and a non-empty interval",
			e.Work, e.From.Format(time.RFC3339), e.Until.Format(time.RFC3339))
	}
	return e.Scaling.Validate()
}

// Stretch is a time interval in which an elastic job runs on a fixed number of replicas, or pauses if Replicas is
// 0.
type Stretch struct {
	Window
	Replicas int
}

// Scale returns the optimal number of replicas of an elastic job at each step of the intensity, and the cost in
// value·seconds per replica (CarbonScaler). It is a greedy algorithm by throughput per carbon: from all steps, and
// in each step from the first block of replicas and each further one, it repeatedly selects the best one until the
// work is done. The last one is only used for a part of its step. Because gains do not increase, the result is
// optimal for one job. The capacity of a cluster is not considered, and changing the number of replicas is assumed
// to be free.
//
// The throughputs of the job are assumed to be exact. Scale returns an error if all replicas at all times are not
// sufficient, or if the intensity is not known for the whole interval.
func Scale(c *grid.Series, e *Elastic) (plan []Stretch, cost float64, err error) {
	if err := e.Validate(); err != nil {
		return nil, 0, err
	}
	if !c.Covers(e.From, e.Until) {
		return nil, 0, fmt.Errorf("elastic job between %s and %s: the intensity is only known from %s to %s",
			e.From.Format(time.RFC3339), e.Until.Format(time.RFC3339),
			c.Start().Format(time.RFC3339), c.End().Format(time.RFC3339))
	}
	pieces := PiecesOf(nil, c, e.From, e.Until)
	a := Allotment{Scaling: &e.Scaling, Pieces: pieces}
	if left := a.Fill(func(int) float64 { return 0 }, e.Work.Seconds()); left > 1e-9*e.Work.Seconds() {
		return nil, 0, fmt.Errorf("elastic job: %v of %v of work remain at %s",
			time.Duration(left*float64(time.Second)), e.Work, e.Until.Format(time.RFC3339))
	}
	return a.Stretches(0), a.cost, nil
}
