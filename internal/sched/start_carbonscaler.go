package sched

import (
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// scalingRule returns from when on an elastic job runs, on how many replicas, and when it is to be asked about again.
// So many have room just now.
type scalingRule func(s *Snapshot, j *Job, room int) (w Window, r Reason, again time.Time, replicas int)

// carbonScaler is the when "carbon-scaler" for elastic jobs (Hanafy et al., SIGMETRICS 2024): what is left of a job
// is given replicas and times by [Scale]'s rule, on the forecast as it is now and with no more replicas for the
// present than have room; it does what that says of the present, and is asked again when that changes, in the next
// slot at the latest.
//
// A job ends within its allowed delay and its run time on the least replicas. Where there is room for all that it may
// ever want, it can count on more replicas to be done in time, and pause for longer than its delay; elsewhere others
// may take that room, so that it never falls back behind what the least replicas, begun as late as allowed, would
// have done.
func carbonScaler(s *Snapshot, j *Job, room int) (Window, Reason, time.Time, int) {
	least := j.Scaling.Least
	left := j.workLeft()
	run := func(r Reason, again time.Time, replicas int) (Window, Reason, time.Time, int) {
		return Window{s.Now, s.Now.Add(left)}, r, again, replicas
	}
	o, ok := s.Forecasts(j)
	if !ok {
		return run(Reason{Kind: NoFreshSignal}, s.Now.Add(slotLength), least)
	}
	next, _ := o.slots()
	work, until, slack := s.promise(j, left)
	if left <= 0 || !until.After(s.Now) { // it is over by what is known, or late
		return run(Reason{Kind: DelayUsedUp}, next, room)
	}
	a := Allotment{Scaling: j.Scaling, Pieces: o.pieces(nil, until), Room: []int{room}}
	a.Fill(func(i int) float64 {
		if j.RoomAssured {
			return 0
		}
		return (a.Pieces[i].End.Sub(s.Now) - slack).Seconds()
	}, work.Seconds())
	plan := a.Stretches(spareTime)
	now, change := plan[0].Replicas, plan[0].End
	for _, p := range plan[1:] {
		if p.Replicas != now {
			break
		}
		change = p.End
	}
	if now > 0 {
		return run(Reason{Kind: Cheapest}, timeutil.Earlier(next, change), now)
	}
	costNow, costLater := o.Over(s.Now, s.Now.Add(work)), a.cost/float64(least)
	few := slack > 0 // it could do on its least replicas
	if !few {        // compared with working evenly until its end
		costNow = o.Over(s.Now, until) * work.Seconds() / until.Sub(s.Now).Seconds()
	}
	if j.Released || few && costNow-costLater <= max(Tolerance, s.Policy.MinSaving)*math.Abs(costNow) {
		// It may count on more replicas from then on to be done in time.
		return run(Reason{Kind: NothingToSave}, timeutil.Earlier(next, change), least)
	}
	why := o.later(s, j, change, costNow, costLater)
	if why.Latest = s.Now.Add(slack); j.RoomAssured {
		why.Latest = until.Add(-time.Duration(float64(work) / j.Scaling.Rate(j.Scaling.Most())))
	}
	return Window{change, change.Add(left)}, why, timeutil.Earlier(next, change), 0
}

// spareTime is by how much more than it needs a part of a slot is used, so that nothing is left at the end for having
// been rounded.
const spareTime = 2 * time.Millisecond

// workLeft is how much longer j is going to run on its least replicas, as far as that is known.
func (j *Job) workLeft() time.Duration {
	if j.Runtimes != nil {
		return j.Runtimes.Residual(j.Done)
	}
	return max(0, j.Duration-j.Done)
}

// promise returns what an elastic job is to do, by when, and for how long it may do nothing if it then runs on its
// least replicas. What going on costs after a pause is kept in hand.
func (s *Snapshot) promise(j *Job, left time.Duration) (work time.Duration, until time.Time, slack time.Duration) {
	allowed := j.AllowedDelay
	if s.Policy.MaxDelay > 0 {
		allowed = min(allowed, s.Policy.MaxDelay)
	}
	until = j.Submitted.Add(allowed + j.Done + left)
	if !j.FinishBy.IsZero() && j.FinishBy.Before(until) {
		until = j.FinishBy
	}
	work = left
	switch {
	case j.Running:
		until = until.Add(-j.RestartCost)
	case j.Done > 0:
		work += j.RestartCost
	}
	slack = max(0, until.Sub(s.Now)-work)
	if !j.RoomAssured { // what is late runs on the least replicas at least
		until = s.Now.Add(slack + work)
	}
	return work, until, slack
}

// Elastic is a job that can run on more or fewer replicas, and change that as it goes.
type Elastic struct {
	From, Until time.Time     // it runs between these
	Work        time.Duration // what is left to do, as the time that it takes on the least number of replicas
	Scaling
}

// Validate says what is wrong with an elastic job.
func (e *Elastic) Validate() error {
	if e.Work <= 0 || !e.Until.After(e.From) {
		return fmt.Errorf("elastic job with work of %v between %s and %s: want some, and time for it", e.Work,
			e.From.Format(time.RFC3339), e.Until.Format(time.RFC3339))
	}
	return e.Scaling.Validate()
}

// Stretch is a time in which an elastic job runs on so many replicas, 0 where it pauses.
type Stretch struct {
	Window
	Replicas int
}

// Scale returns on how many replicas an elastic job had best run at each step of the intensity, and what that costs,
// in value·seconds per replica (CarbonScaler). It is greedy by throughput per carbon: of all steps, and in each of
// the first block of replicas and of each further one, the best next one is taken until the work is done, the last
// for a part of its step only. As gains do not rise, that is optimal for one job; the capacity of a cluster is not
// looked at, and changing the number of replicas costs nothing.
//
// The work is done as throughputs have it: it is an error where all replicas, all the time, are not enough, and where
// the intensity is not known for all of the time.
func Scale(c *grid.Series, e *Elastic) (plan []Stretch, cost float64, err error) {
	if err := e.Validate(); err != nil {
		return nil, 0, err
	}
	if !c.Covers(e.From, e.Until) {
		return nil, 0, fmt.Errorf("elastic job between %s and %s: the intensity is known from %s to %s",
			e.From.Format(time.RFC3339), e.Until.Format(time.RFC3339),
			c.Start().Format(time.RFC3339), c.End().Format(time.RFC3339))
	}
	pieces := piecesOf(nil, c, e.From, e.Until)
	a := Allotment{Scaling: &e.Scaling, Pieces: pieces}
	if left := a.Fill(func(int) float64 { return 0 }, e.Work.Seconds()); left > 1e-9*e.Work.Seconds() {
		return nil, 0, fmt.Errorf("elastic job: %v of %v of work are left at %s",
			time.Duration(left*float64(time.Second)), e.Work, e.Until.Format(time.RFC3339))
	}
	return a.Stretches(0), a.cost, nil
}
