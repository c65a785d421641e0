package oracle

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// NonPreemptive returns the optimal start of j without interruptions, and the integral of c over the run. The
// result is exact. The earliest of several optimal starts is returned.
//
// Because c is piecewise constant, the cost is piecewise linear in the start. Its minimum is at either end of the
// allowed range, or where one end of the run coincides with a step of c.
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

// Interruptible returns the minimum integral of c over the run time of j if it may be suspended and resumed at any
// time and at no cost. It uses the cheapest times between the submission and the latest completion. It is exact,
// and is called WaitAwhile by Let's Wait Awhile and GAIA.
func Interruptible(c *grid.Series, j *sched.Job) (cost float64) {
	end := j.LatestStart().Add(j.Duration)
	pieces := sched.PiecesOf(nil, c, j.Submitted, end)
	slices.SortFunc(pieces, func(a, b sched.Piece) int { return cmp.Compare(a.Rate, b.Rate) })
	left := j.Duration
	for _, p := range pieces {
		run := min(left, p.End.Sub(p.Start))
		cost += p.Rate * run.Seconds()
		if left -= run; left == 0 {
			break
		}
	}
	return cost
}

// Elastic is like [Interruptible], but the number of replicas of j may also be changed at any time and at no cost,
// as planned by CarbonScaler with a perfect forecast. Each time is weighted by the number of replicas relative to
// the minimum number. The result is exact.
func Elastic(c *grid.Series, j *sched.Job) (cost float64, err error) {
	_, cost, err = sched.Scale(c, &sched.Elastic{
		From: j.Submitted, Until: j.LatestStart().Add(j.Duration), Work: j.Duration, Scaling: *j.Scaling,
	})
	return cost / float64(j.Scaling.Least), err
}
