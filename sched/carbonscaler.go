package sched

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/grid"
)

// Elastic is a job that can run on more or fewer replicas, and change that as it goes.
type Elastic struct {
	From, Until time.Time     // it runs between these
	Work        time.Duration // what is left to do, as the time that it takes on Least replicas

	// Throughput is how much is done per time on Least replicas, on one more, and so on, relative to that on Least: it
	// begins with 1. The gain of each replica must not exceed that of the one before, nor the average of the first ones.
	Throughput []float64
	Least      int // replicas
}

// Validate says what is wrong with an elastic job.
func (e *Elastic) Validate() error {
	switch {
	case e.Work <= 0 || !e.Until.After(e.From):
		return fmt.Errorf("elastic job with work of %v between %s and %s: want some, and time for it", e.Work, e.From.Format(time.RFC3339), e.Until.Format(time.RFC3339))
	case e.Least < 1 || len(e.Throughput) == 0 || e.Throughput[0] != 1:
		return errors.New("elastic job: want one replica at least, and throughputs that begin with 1")
	}
	gain := 1 / float64(e.Least)
	for i := 1; i < len(e.Throughput); i++ {
		next := e.Throughput[i] - e.Throughput[i-1]
		if !(next >= 0) || next > gain*(1+tolerance) {
			return fmt.Errorf("elastic job: replica %d gains %v, the one before %v: want gains that do not rise, and none below 0", e.Least+i, next, gain)
		}
		gain = next
	}
	return nil
}

// Stretch is a time in which an elastic job runs on so many replicas, 0 where it pauses.
type Stretch struct {
	Window
	Replicas int
}

// Scale returns on how many replicas an elastic job had best run at each step of the intensity, and what that costs, in
// value·seconds per replica (CarbonScaler). It is greedy by throughput per carbon: of all steps, and in each of the first
// block of replicas and of each further one, the best next one is taken until the work is done, the last for a part of its
// step only. As gains do not rise, that is optimal for one job; the capacity of a cluster is not looked at, and changing the
// number of replicas costs nothing.
//
// The work is done as throughputs have it: it is an error where all replicas, all the time, are not enough, and where the
// intensity is not known for all of the time.
func Scale(c *grid.Series, e *Elastic) (plan []Stretch, cost float64, err error) {
	if err := e.Validate(); err != nil {
		return nil, 0, err
	}
	if !c.Covers(e.From, e.Until) {
		return nil, 0, fmt.Errorf("elastic job between %s and %s: the intensity is known from %s to %s", e.From.Format(time.RFC3339), e.Until.Format(time.RFC3339),
			c.Start().Format(time.RFC3339), c.End().Format(time.RFC3339))
	}
	from := e.From
	for t := range c.Steps(e.From, e.Until) {
		plan = append(plan, Stretch{Window: Window{from, t}})
		from = t
	}
	if from.Before(e.Until) {
		plan = append(plan, Stretch{Window: Window{from, e.Until}})
	}
	left := e.Work.Seconds()
	var last *Stretch
	rest := 0.0
	for _, o := range e.increments(c, plan) {
		s := &plan[o.stretch]
		length := s.End.Sub(s.Start).Seconds()
		share := min(1, left/(o.gain*length))
		cost += share * o.cost * length
		left -= share * o.gain * length
		s.Replicas += o.replicas
		if left <= 1e-9*e.Work.Seconds() {
			last, rest = s, share
			break
		}
	}
	if last == nil {
		return nil, 0, fmt.Errorf("elastic job: %v of %v of work are left at %s", time.Duration(left*float64(time.Second)), e.Work, e.Until.Format(time.RFC3339))
	}
	return e.cut(plan, last, rest), cost, nil
}

// increment is one more unit of replicas in a stretch.
type increment struct {
	stretch, replicas int
	gain, cost        float64 // per second
}

// increments returns all units that can be taken, the best first. In a stretch the first block comes before the second replica,
// since gains do not rise; equally good ones are taken in the order of time.
func (e *Elastic) increments(c *grid.Series, plan []Stretch) []increment {
	var all []increment
	for i := range plan {
		value := c.At(plan[i].Start)
		all = append(all, increment{i, e.Least, 1, float64(e.Least) * value})
		gain := 1 / float64(e.Least)
		for k := 1; k < len(e.Throughput); k++ {
			if gain = min(gain, e.Throughput[k]-e.Throughput[k-1]); gain > 0 { // it may rise by rounding alone
				all = append(all, increment{i, 1, gain, value})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b increment) int {
		return cmp.Or(cmp.Compare(a.cost*b.gain, b.cost*a.gain), cmp.Compare(a.stretch, b.stretch), cmp.Compare(b.gain, a.gain))
	})
	return all
}

// cut divides the stretch of the last unit, which is needed for a share of it alone.
func (e *Elastic) cut(plan []Stretch, last *Stretch, share float64) []Stretch {
	if share >= 1-1e-12 {
		return plan
	}
	at := slices.IndexFunc(plan, func(s Stretch) bool { return s.Start.Equal(last.Start) })
	less := *last
	if less.Replicas--; less.Replicas < e.Least {
		less.Replicas = 0
	}
	length := float64(last.End.Sub(last.Start))
	less.Start = last.Start.Add(time.Duration(math.Round(share * length)))
	plan[at].End = less.Start
	return slices.Insert(plan, at+1, less)
}
