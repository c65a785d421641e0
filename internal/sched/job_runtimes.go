package sched

import (
	"fmt"
	"math"
	"time"
)

// Runtimes is what is known of how long jobs of a kind run: the share of them that runs for longer than a time, on
// equal steps and linear in between. It is immutable, so that the jobs of many snapshots can share it.
type Runtimes struct {
	Step     time.Duration
	Survival []float64 // Survival[i] is the share that runs for longer than i·Step; Survival[0] is 1
	executed []float64 // executed[i] is the integral of Survival up to i·Step, in seconds
}

// NewRuntimes copies the shares of jobs that run for longer than 0, step, 2·step and so on. They begin with 1 and do
// not rise. What runs longer than the last one is taken to end there.
func NewRuntimes(step time.Duration, survival []float64) (*Runtimes, error) {
	if step <= 0 || len(survival) < 2 || survival[0] != 1 {
		return nil,
			fmt.Errorf("runtimes in %d steps of %v: want two or more of a length above 0, and the first to be 1",
				len(survival), step)
	}
	r := &Runtimes{Step: step, Survival: append([]float64(nil), survival...), executed: make([]float64, len(survival))}
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
	if i >= len(r.Survival)-1 {
		return 0
	}
	return r.Survival[i] + rest*(r.Survival[i+1]-r.Survival[i])
}

// Executed returns how many seconds of its first d a job runs on average: the integral of [Runtimes.Longer].
func (r *Runtimes) Executed(d time.Duration) float64 {
	i, rest := r.at(d)
	if i >= len(r.Survival)-1 {
		return r.executed[len(r.executed)-1]
	}
	next := r.Survival[i] + rest*(r.Survival[i+1]-r.Survival[i])
	return r.executed[i] + rest*r.Step.Seconds()*(r.Survival[i]+next)/2
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
	i = int(d / r.Step)
	return i, float64(d%r.Step) / float64(r.Step)
}

// lifetime is how long a job runs: a distribution, or exactly so long.
type lifetime struct {
	runtimes *Runtimes // nil: length
	length   time.Duration
	most     float64 // work that is planned for, in seconds since the job began
}

// Planning stops where hardly any of the work is left that a job is expected to have left, or after so many slots of
// it.
const (
	negligible  = 0.004
	maxRunSlots = 120
)

// lifetime returns how long j runs, planned in slots of a length.
func (j *Job) lifetime(slot time.Duration) lifetime {
	l := lifetime{runtimes: j.Runtimes, length: j.Duration, most: math.Inf(1)}
	most := l.executed(j.Done + maxRunSlots*slot)
	if l.runtimes != nil {
		all := l.executed(math.MaxInt64)
		most = min(most, all-negligible*(all-l.executed(j.Done)))
	}
	l.most = most
	return l
}

// longer is the probability that the job runs for longer than d.
func (l *lifetime) longer(d time.Duration) float64 {
	switch {
	case l.runtimes != nil:
		return l.runtimes.Longer(d)
	case d < l.length:
		return 1
	}
	return 0
}

// executed is how many seconds of its first d the job runs on average.
func (l *lifetime) executed(d time.Duration) float64 {
	if l.runtimes != nil {
		return min(l.most, l.runtimes.Executed(d))
	}
	return min(l.most, min(d, l.length).Seconds())
}

// work appends what is executed on average in the slots that follow so much work, until none is left.
func (l *lifetime) work(dst []float64, done, slot time.Duration) []float64 {
	for before := l.executed(done); len(dst) <= maxRunSlots && before < l.most; {
		done += slot
		after := l.executed(done)
		dst = append(dst, after-before)
		before = after
	}
	return dst
}

// costFrom is the expected cost of running on without a pause from when so much of the first slot is left, at these
// prices of slots.
func (l *lifetime) costFrom(z []float64, done, rest, slot time.Duration) float64 {
	before, at := l.executed(done), done+rest
	cost := 0.0
	for _, price := range z {
		after := l.executed(at)
		cost += price * (after - before)
		if after >= l.most {
			break
		}
		before, at = after, at+slot
	}
	return cost
}
