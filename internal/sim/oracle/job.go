package oracle

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// NonPreemptive returns when j had best start, if it is to run without a break, and the integral of c over that run.
// It is exact. The earliest of equally good starts is returned.
//
// The cost of a start is piecewise linear in it, since c is piecewise constant, so its minimum lies at either end of
// what is allowed, or where one end of the run meets a step of c.
func NonPreemptive(c *grid.Series, j *sched.Job) (start time.Time, cost float64) {
	first, last := j.Submitted, j.LatestStart()
	start, cost = first, c.Integral(first, first.Add(j.Duration))
	consider := func(s time.Time) {
		here := c.Integral(s, s.Add(j.Duration))
		if here < cost || here == cost && s.Before(start) {
			start, cost = s, here
		}
	}
	for t := range c.Steps(first, last) {
		consider(t)
	}
	for t := range c.Steps(first.Add(j.Duration), last.Add(j.Duration)) {
		consider(t.Add(-j.Duration))
	}
	consider(last)
	return start, cost
}

// Interruptible returns the least integral of c over the time that j runs, if it may be suspended and resumed at any
// moment and at no cost: its cheapest moments between submission and the last one at which it may finish. It is
// exact, and what Let's Wait Awhile and GAIA call WaitAwhile.
func Interruptible(c *grid.Series, j *sched.Job) (cost float64) {
	end := j.LatestStart().Add(j.Duration)
	var segments []segment
	from := j.Submitted
	for t := range c.Steps(from, end) {
		segments = append(segments, segment{c.At(from), t.Sub(from)})
		from = t
	}
	segments = append(segments, segment{c.At(from), end.Sub(from)})
	slices.SortFunc(segments, func(a, b segment) int { return cmp.Compare(a.value, b.value) })
	left := j.Duration
	for _, s := range segments {
		run := min(left, s.length)
		cost += s.value * run.Seconds()
		if left -= run; left == 0 {
			break
		}
	}
	return cost
}

// Elastic is [Interruptible] where the number of replicas on which j runs may also be chosen, and changed at any
// moment and at no cost: what CarbonScaler plans with a perfect forecast. It counts a moment as often as j then has
// its least number of replicas, in parts of that too, and is exact.
func Elastic(c *grid.Series, j *sched.Job) (cost float64, err error) {
	_, cost, err = sched.Scale(c, &sched.Elastic{
		From: j.Submitted, Until: j.LatestStart().Add(j.Duration), Work: j.Duration, Scaling: *j.Scaling,
	})
	return cost / float64(j.Scaling.Least), err
}

// segment is a stretch of time with one intensity.
type segment struct {
	value  float64
	length time.Duration
}
