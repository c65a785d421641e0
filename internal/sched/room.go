package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Room is how many cores of a pool of machines are free over time, as far as that is known: it says when a job that may
// wait finds room, for its [Job.Openings]. Jobs that do not wait are taken to be followed by others like them for good:
// what may wait gets the room that these leave, or they would wait for it.
//
// Where jobs that do not wait have waited for room, a core that is left idle now will be lacking later: there what may
// wait is put off only while there is a queue, which it lets pass.
type Room struct {
	MilliCPU int64 // of all machines
	Queue    Queue
	loads    []load
}

// load is what a job takes from one instant to another.
type load struct {
	job      int64
	window   Window
	milliCPU int64
}

// Queue is how much jobs have waited for room that do not ask to wait.
type Queue struct {
	MilliCPU int64         `json:"milliCPU,omitempty"` // what they wait for since At
	At       time.Time     `json:"at,omitzero"`
	Share    float64       `json:"share,omitempty"` // mean until At of what they waited for, of all cores, 1 at most
	Over     time.Duration `json:"over,omitempty"`  // the time that it is the mean of
}

const (
	rush     = 0.05               // a larger share is a queue that matters
	rushOver = 7 * 24 * time.Hour // what was before fades
)

// Rushed reports whether the queue was one that matters.
func (q *Queue) Rushed() bool { return q.Share > rush }

// until returns the queue as it is at an instant.
func (q Queue) until(now time.Time, cores int64) *Queue {
	if passed := now.Sub(q.At); !q.At.IsZero() && passed > 0 {
		q.Over = min(q.Over+passed, rushOver)
		waited := min(float64(q.MilliCPU)/float64(max(cores, 1)), 1)
		q.Share += (waited - q.Share) * min(float64(passed)/float64(q.Over), 1)
	}
	q.At = now
	return &q
}

// Waits notes how many cores jobs wait for, from now on, that do not ask to wait. It reports whether none do any more.
func (r *Room) Waits(milliCPU int64, now time.Time) (ended bool) {
	ended = r.Queue.MilliCPU > 0 && milliCPU == 0
	r.Queue = *r.Queue.until(now, r.MilliCPU)
	r.Queue.MilliCPU = milliCPU
	return ended
}

// Forget drops all loads; what was waited for stays.
func (r *Room) Forget() { r.loads = r.loads[:0] }

// Take counts a job as running in some time, and in no other.
func (r *Room) Take(job, milliCPU int64, w Window) {
	r.Drop(job)
	r.loads = append(r.loads, load{job, w, milliCPU})
}

// Stay counts a job that does not wait, from an instant on.
func (r *Room) Stay(job, milliCPU int64, from time.Time) {
	const forGood = 100 * 365 * 24 * time.Hour
	r.Take(job, milliCPU, Window{from, from.Add(forGood)})
}

// Drop forgets a job.
func (r *Room) Drop(job int64) {
	r.loads = slices.DeleteFunc(r.loads, func(l load) bool { return l.job == job })
}

// Openings returns when a job finds room that begins now or later and by its latest start; none: at any time. Where
// there is no room until then, now is as good as later. A job that is larger than the pool is not ours to judge.
func (r *Room) Openings(id int64, j *Job, now time.Time) []Window {
	latest := j.LatestStart()
	switch {
	case r.MilliCPU < j.Request.MilliCPU:
		return nil
	case r.Queue.MilliCPU > 0:
		// What may wait gets its turn by the time of its submission. The last quarter is left for what runs to end.
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

// free returns when there is room for a job beside the loads.
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
	// At one instant, what ends makes room for what begins.
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.more, b.more)) })
	taken, from := int64(0), now
	for i, s := range steps {
		if taken += s.more; taken+j.Request.MilliCPU <= r.MilliCPU {
			continue // until the next step there is room
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
