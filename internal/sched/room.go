package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Room tracks the free cores of a pool of machines over time, as far as they are known, and computes the
// [Job.Openings] of jobs that may wait. Jobs that do not wait are assumed to be followed by similar jobs forever,
// so that delayed jobs are only planned for the remaining capacity.
//
// If jobs that do not wait have recently queued for capacity, idle cores are used immediately, because they will be
// missing later. Jobs that may wait are then only delayed while there is a queue, to let it drain.
type Room struct {
	MilliCPU int64 // total of all machines
	Queue    Queue
	loads    []load
}

// load is the number of cores that a job uses during a window.
type load struct {
	job      int64
	window   Window
	milliCPU int64
}

// Queue tracks how many cores were requested by waiting jobs that do not allow a delay.
type Queue struct {
	MilliCPU int64         `json:"milliCPU,omitempty"` // cores requested since At
	At       time.Time     `json:"at,omitzero"`
	Share    float64       `json:"share,omitempty"` // mean until At of the fraction of all cores requested, at most 1
	Over     time.Duration `json:"over,omitempty"`  // averaging period of Share
}

const (
	rush     = 0.05               // a queue with a larger Share is significant
	rushOver = 7 * 24 * time.Hour // older values fade out
)

// Rushed reports whether Share exceeds the threshold of a significant queue.
func (q *Queue) Rushed() bool { return q.Share > rush }

// until returns the queue updated to the given time.
func (q Queue) until(now time.Time, cores int64) *Queue {
	if passed := now.Sub(q.At); !q.At.IsZero() && passed > 0 {
		q.Over = min(q.Over+passed, rushOver)
		waited := min(float64(q.MilliCPU)/float64(max(cores, 1)), 1)
		q.Share += (waited - q.Share) * min(float64(passed)/float64(q.Over), 1)
	}
	q.At = now
	return &q
}

// Waits sets the number of cores requested, from now on, by waiting jobs that do not allow a delay. It reports
// whether the queue has just become empty.
func (r *Room) Waits(milliCPU int64, now time.Time) (ended bool) {
	ended = r.Queue.MilliCPU > 0 && milliCPU == 0
	r.Queue = *r.Queue.until(now, r.MilliCPU)
	r.Queue.MilliCPU = milliCPU
	return ended
}

// Forget removes all loads. The history of the queue is retained.
func (r *Room) Forget() { r.loads = r.loads[:0] }

// Take sets the window in which a job runs, replacing any previous one.
func (r *Room) Take(job, milliCPU int64, w Window) {
	r.Drop(job)
	r.loads = append(r.loads, load{job, w, milliCPU})
}

// Stay adds a job that does not wait and occupies its cores from the given time on.
func (r *Room) Stay(job, milliCPU int64, from time.Time) {
	const forGood = 100 * 365 * 24 * time.Hour
	r.Take(job, milliCPU, Window{from, from.Add(forGood)})
}

// Drop removes a job.
func (r *Room) Drop(job int64) {
	r.loads = slices.DeleteFunc(r.loads, func(l load) bool { return l.job == job })
}

// Openings returns the windows between now and the latest start in which a job can start. A nil result means that
// it can start at any time. If there is no capacity until the latest start, the only opening is now, because
// waiting does not help. Jobs that are larger than the pool are not restricted.
func (r *Room) Openings(id int64, j *Job, now time.Time) []Window {
	latest := j.LatestStart()
	switch {
	case r.MilliCPU < j.Request.MilliCPU:
		return nil
	case r.Queue.MilliCPU > 0:
		// Jobs that may wait get capacity in order of submission. The last quarter of the delay is reserved for
		// running jobs to finish.
		return []Window{{now, timeutil.Later(now, latest.Add(-latest.Sub(j.Submitted)/4))}}
	case r.Queue.until(now, r.MilliCPU).Rushed():
		return []Window{{now, now}}
	}
	open := r.free(id, j, now, latest)
	if len(open) == 0 {
		return []Window{{now, now}}
	}
	if len(open) == 1 && open[0].Start.Equal(now) && open[0].End.Equal(latest) {
		return nil
	}
	return open
}

// free returns the windows in which there is capacity for a job in addition to the loads.
func (r *Room) free(id int64, j *Job, now, latest time.Time) (open []Window) {
	type step struct {
		at   time.Time
		more int64
	}
	var steps []step
	for _, l := range r.loads {
		if l.job != id {
			steps = append(steps, step{l.window.Start, l.milliCPU}, step{l.window.End, -l.milliCPU})
		}
	}
	// At equal times, jobs that end free their capacity before other jobs start.
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.more, b.more)) })
	taken, from := int64(0), now
	for i, s := range steps {
		if taken += s.more; taken+j.Request.MilliCPU <= r.MilliCPU {
			continue // there is capacity until the next step
		}
		to := latest
		if i+1 < len(steps) {
			to = steps[i+1].at
		}
		if end := timeutil.Earlier(s.at.Add(-j.Duration), latest); !end.Before(from) {
			open = append(open, Window{Start: from, End: end})
		}
		from = timeutil.Later(from, to)
	}
	if !latest.Before(from) {
		open = append(open, Window{Start: from, End: latest})
	}
	return open
}
