package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/grid"
)

// Room is how many cores of a pool of machines are free over time, as far as that is known: it says when a job that may
// wait finds room, for its [Job.Openings]. Jobs that do not wait are taken to be followed by others like them for good:
// what may wait gets the room that these leave, or they would wait for it.
type Room struct {
	MilliCPU int64 // of all machines
	loads    []load
}

// load is what a job takes from one instant to another.
type load struct {
	job      int64
	window   Window
	milliCPU int64
}

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
func (r *Room) Openings(job, milliCPU int64, now, latest time.Time, length time.Duration) (open []Window) {
	if r.MilliCPU < milliCPU {
		return nil
	}
	type step struct {
		at   time.Time
		more int64
	}
	var steps []step
	for _, l := range r.loads {
		if l.job != job {
			steps = append(steps, step{l.window.Start, l.milliCPU}, step{l.window.End, -l.milliCPU})
		}
	}
	// At one instant, what ends makes room for what begins.
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.more, b.more)) })
	taken, from := int64(0), now
	for i, s := range steps {
		if taken += s.more; taken+milliCPU <= r.MilliCPU {
			continue // until the next step there is room
		}
		to := latest
		if i+1 < len(steps) {
			to = steps[i+1].at
		}
		if end := grid.Earlier(s.at.Add(-length), latest); !end.Before(from) {
			open = append(open, Window{Start: from, End: end})
		}
		from = grid.Later(from, to)
	}
	if !latest.Before(from) {
		open = append(open, Window{Start: from, End: latest})
	}
	if len(open) == 0 {
		return []Window{{now, now}}
	}
	if len(open) == 1 && open[0].Start.Equal(now) && open[0].End.Equal(latest) {
		return nil
	}
	return open
}
