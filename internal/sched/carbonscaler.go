package sched

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

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
	a := allotment{scaling: &e.Scaling, pieces: pieces}
	if left := a.fill(func(int) float64 { return 0 }, e.Work.Seconds()); left > 1e-9*e.Work.Seconds() {
		return nil, 0, fmt.Errorf("elastic job: %v of %v of work are left at %s",
			time.Duration(left*float64(time.Second)), e.Work, e.Until.Format(time.RFC3339))
	}
	return a.stretches(0), a.cost, nil
}
