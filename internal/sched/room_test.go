package sched_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// TestRoomHeedsTheQueue checks that jobs that may wait start immediately after other jobs have queued for capacity,
// and that they are delayed while there is a queue, except for the last quarter of their delay.
func TestRoomHeedsTheQueue(t *testing.T) {
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	job := sched.Job{
		ID: "j", Submitted: noon, AllowedDelay: 4 * time.Hour, Duration: time.Hour,
		Request: sched.Resources{MilliCPU: 4000},
	}
	window := func(from, to time.Duration) []sched.Window {
		return []sched.Window{{Start: noon.Add(from), End: noon.Add(to)}}
	}
	now := window(0, 0)
	type queue struct {
		ago      time.Duration
		milliCPU int64
	}
	for name, c := range map[string]struct {
		queue []queue
		taken int64
		want  []sched.Window
	}{
		"no queue":                                  {nil, 0, nil},
		"queue has always been empty":               {[]queue{{time.Hour, 0}}, 0, nil},
		"empty queue and occupied capacity":         {[]queue{{time.Hour, 0}}, 5000, now},
		"queue is not empty":                        {[]queue{{time.Hour, 0}, {0, 2000}}, 8000, window(0, 3*time.Hour)},
		"queue was not empty for a long time":       {[]queue{{2 * time.Hour, 8000}, {time.Hour, 0}}, 0, now},
		"queue was not empty for a minute":          {[]queue{{time.Hour, 2000}, {59 * time.Minute, 0}}, 0, nil},
		"queue was not empty once in the past":      {[]queue{{48 * time.Hour, 0}, {6 * time.Hour, 8000}, {4 * time.Hour, 0}}, 0, nil},
		"queue filled and drained at the same time": {[]queue{{0, 8000}, {0, 0}}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := sched.Room{MilliCPU: 8000}
			for _, q := range c.queue {
				r.Waits(q.milliCPU, noon.Add(-q.ago))
			}
			if c.taken > 0 {
				r.Stay(1, c.taken, noon)
			}
			if diff := cmp.Diff(c.want, r.Openings(2, &job, noon)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestQueuesFade checks that queues of the distant past are forgotten, regardless of how often Waits is called.
func TestQueuesFade(t *testing.T) {
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	day := func(n int) time.Time { return start.Add(time.Duration(n) * 24 * time.Hour) }
	for _, every := range []time.Duration{time.Minute, 6 * time.Hour} {
		r := sched.Room{MilliCPU: 1000}
		job := sched.Job{AllowedDelay: 24 * time.Hour, Request: sched.Resources{MilliCPU: 1000}}
		ended, free := 0, time.Time{}
		for now := start; now.Before(day(40)) && free.IsZero(); now = now.Add(every) {
			queued := int64(0)
			if now.Before(day(1)) {
				queued = 5000
			}
			if r.Waits(queued, now) {
				ended++
			}
			job.Submitted = now
			if queued == 0 && r.Openings(1, &job, now) == nil {
				free = now
			}
		}
		if ended != 1 || free.Before(day(14)) || free.After(day(22)) {
			t.Errorf("every %v: queue became empty %d times, and was forgotten at %v", every, ended, free)
		}
	}
}

// TestQueueOfAClockThatIsSetBack checks that setting the clock back does not change the recorded history.
func TestQueueOfAClockThatIsSetBack(t *testing.T) {
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	r := sched.Room{MilliCPU: 1000}
	r.Waits(1000, start)
	r.Waits(0, start.Add(time.Hour))
	before := r.Queue.Share
	r.Waits(0, start)
	if r.Queue.Share != before || before != 1 {
		t.Errorf("Share = %v after the clock was set back, want %v", r.Queue.Share, before)
	}
}
