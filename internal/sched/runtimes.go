package sched

import (
	"fmt"
	"math"
	"time"
)

// Runtimes is what is known of how long jobs of a kind run: the share of them that runs for longer than a time, on
// equal steps and linear in between. It is immutable, so that the jobs of many snapshots can share it.
type Runtimes struct {
	step     time.Duration
	survival []float64 // survival[i] is the share that runs for longer than i·step; survival[0] is 1
	executed []float64 // executed[i] is the integral of survival up to i·step, in seconds
}

// NewRuntimes copies the shares of jobs that run for longer than 0, step, 2·step and so on. They begin with 1 and do
// not rise. What runs longer than the last one is taken to end there.
func NewRuntimes(step time.Duration, survival []float64) (*Runtimes, error) {
	if step <= 0 || len(survival) < 2 || survival[0] != 1 {
		return nil,
			fmt.Errorf("runtimes in %d steps of %v: want two or more of a length above 0, and the first to be 1",
				len(survival), step)
	}
	r := &Runtimes{step: step, survival: append([]float64(nil), survival...), executed: make([]float64, len(survival))}
	for i, v := range survival {
		if !(v >= 0) || i > 0 && v > survival[i-1] {
			return nil, fmt.Errorf("share %d of runtimes is %v: want 0 or more, and not more than the one before", i, v)
		}
		if i > 0 {
			r.executed[i] = r.executed[i-1] + step.Seconds()*(v+survival[i-1])/2
		}
	}
	return r, nil
}

// Longer returns the share of jobs that run for longer than d.
func (r *Runtimes) Longer(d time.Duration) float64 {
	i, rest := r.at(d)
	if i >= len(r.survival)-1 {
		return 0
	}
	return r.survival[i] + rest*(r.survival[i+1]-r.survival[i])
}

// Executed returns how many seconds of its first d a job runs on average: the integral of [Runtimes.Longer].
func (r *Runtimes) Executed(d time.Duration) float64 {
	i, rest := r.at(d)
	if i >= len(r.survival)-1 {
		return r.executed[len(r.executed)-1]
	}
	next := r.survival[i] + rest*(r.survival[i+1]-r.survival[i])
	return r.executed[i] + rest*r.step.Seconds()*(r.survival[i]+next)/2
}

// Mean returns how long jobs run on average.
func (r *Runtimes) Mean() time.Duration { return r.Residual(0) }

// Residual returns how much longer a job runs on average that has run for done already.
func (r *Runtimes) Residual(done time.Duration) time.Duration {
	longer := r.Longer(done)
	if longer <= 0 {
		return 0
	}
	seconds := (r.executed[len(r.executed)-1] - r.Executed(done)) / longer
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// at returns the step that d lies in, and how far into it.
func (r *Runtimes) at(d time.Duration) (i int, rest float64) {
	if d <= 0 {
		return 0, 0
	}
	i = int(d / r.step)
	return i, float64(d%r.step) / float64(r.step)
}
