package sched

import (
	"math"
	"time"
)

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
