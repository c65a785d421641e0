package sched

import (
	"fmt"
	"math"
	"time"
)

// Runtimes is the distribution of the run times of similar jobs: the fraction of jobs that run longer than a given
// time, in equal steps and with linear interpolation. It is immutable, so that the jobs of several snapshots can
// share it.
type Runtimes struct {
	Step     time.Duration
	Survival []float64 // fraction of jobs that run longer than i·Step; Survival[0] is 1
	executed []float64 // integral of Survival from 0 to i·Step, in seconds
}

// NewRuntimes returns the distribution for the given fractions of jobs that run longer than 0, step, 2·step and so
// on. It copies the slice. The first fraction must be 1 and the fractions must not increase. All jobs are assumed
// to finish by the time of the last fraction.
func NewRuntimes(step time.Duration, survival []float64) (*Runtimes, error) {
	if step <= 0 || len(survival) < 2 || survival[0] != 1 {
		return nil,
			fmt.Errorf("runtimes with %d steps of %v: want at least two steps of a positive length, starting with 1",
				len(survival), step)
	}
	r := &Runtimes{Step: step, Survival: append([]float64(nil), survival...), executed: make([]float64, len(survival))}
	for i, v := range survival {
		if !(v >= 0) || i > 0 && v > survival[i-1] {
			return nil, fmt.Errorf("runtimes: fraction %d is %v: want at least 0 and no increase", i, v)
		}
		if i > 0 {
			r.executed[i] = r.executed[i-1] + step.Seconds()*(v+survival[i-1])/2
		}
	}
	return r, nil
}

// Quantile returns the time by which the given fraction of jobs have finished.
func (r *Runtimes) Quantile(p float64) time.Duration {
	for i, v := range r.Survival[1:] {
		if before := r.Survival[i]; v <= 1-p && v < before {
			return r.Step*time.Duration(i) + time.Duration((before-(1-p))/(before-v)*float64(r.Step))
		}
	}
	return r.Step * time.Duration(len(r.Survival)-1)
}

// Longer returns the fraction of jobs that run longer than d.
func (r *Runtimes) Longer(d time.Duration) float64 {
	i, rest := r.at(d)
	if i >= len(r.Survival)-1 {
		return 0
	}
	return r.Survival[i] + rest*(r.Survival[i+1]-r.Survival[i])
}

// Executed returns the mean run time within the first d of a job, in seconds. This is the integral of
// [Runtimes.Longer].
func (r *Runtimes) Executed(d time.Duration) float64 {
	i, rest := r.at(d)
	if i >= len(r.Survival)-1 {
		return r.executed[len(r.executed)-1]
	}
	next := r.Survival[i] + rest*(r.Survival[i+1]-r.Survival[i])
	return r.executed[i] + rest*r.Step.Seconds()*(r.Survival[i]+next)/2
}

// Mean returns the mean run time.
func (r *Runtimes) Mean() time.Duration { return r.Residual(0) }

// Residual returns the mean remaining run time of a job that has already run for done.
func (r *Runtimes) Residual(done time.Duration) time.Duration {
	longer := r.Longer(done)
	if longer <= 0 {
		return 0
	}
	seconds := (r.executed[len(r.executed)-1] - r.Executed(done)) / longer
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// at returns the step that contains d, and the position of d within this step as a fraction.
func (r *Runtimes) at(d time.Duration) (i int, rest float64) {
	if d <= 0 {
		return 0, 0
	}
	i = int(d / r.Step)
	return i, float64(d%r.Step) / float64(r.Step)
}

// lifetime is the run time of a job, either as a distribution or as an exact length.
type lifetime struct {
	runtimes *Runtimes // nil if the length is known
	length   time.Duration
	most     float64 // maximum planned work, in seconds since the start of the job
}

// A plan stops once only a negligible fraction of the expected remaining work is left, or after the maximum number
// of slots.
const (
	negligible  = 0.004
	maxRunSlots = 120
)

// lifetime returns the run time of j for a plan with slots of the given length.
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

// longer returns the probability that the job runs longer than d.
func (l *lifetime) longer(d time.Duration) float64 {
	switch {
	case l.runtimes != nil:
		return l.runtimes.Longer(d)
	case d < l.length:
		return 1
	}
	return 0
}

// executed returns the expected run time within the first d of the job, in seconds.
func (l *lifetime) executed(d time.Duration) float64 {
	if l.runtimes != nil {
		return min(l.most, l.runtimes.Executed(d))
	}
	return min(l.most, min(d, l.length).Seconds())
}

// work appends the expected work in each slot after the completed work, until no planned work remains.
func (l *lifetime) work(dst []float64, done, slot time.Duration) []float64 {
	for before := l.executed(done); len(dst) <= maxRunSlots && before < l.most; {
		done += slot
		after := l.executed(done)
		dst = append(dst, after-before)
		before = after
	}
	return dst
}

// costFrom returns the expected cost of running without a pause, for the given prices of slots. The job starts with
// the given completed work when rest of the first slot remains.
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
