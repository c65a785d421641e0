package sched

import "time"

// left is how much work is expected to be left of j: its duration less what is done, or the mean of what those that
// ran for so long run further. What has outlived all that was known of it is taken to run for as long again: nothing
// that still runs is about to end for having run too long.
func (j *Job) left() time.Duration {
	if j.Done <= 0 {
		return j.Duration
	}
	if left := j.workLeft(); left > 0 {
		return left
	}
	return j.Done
}

// remaining is how long j is expected to run from now on on a node of speed 1 unless it is suspended: what is left of
// it, and what has to be done once more where it is resumed.
func (j *Job) remaining() time.Duration {
	if j.Done > 0 && !j.Running {
		return j.left() + j.RestartCost
	}
	return j.left()
}

// window is that in which j is expected to run from an instant on.
func (j *Job) window(from time.Time) Window { return Window{from, from.Add(j.remaining())} }
