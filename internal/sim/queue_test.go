package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// The queue serves jobs in the same order as a scan of all jobs.
func TestWaitingQueueIsAListInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newWaitingQueue()
		var list []int // reference implementation
		var jobs []sched.Job
		for range rapid.IntRange(1, 12).Draw(t, "passes") {
			for range rapid.IntRange(0, 8).Draw(t, "arrivals") {
				j := sched.Job{Request: sched.Resources{
					MilliCPU: rapid.Int64Range(1, 4).Draw(t, "cpu"), Memory: rapid.Int64Range(0, 2).Draw(t, "memory"),
				}}
				if rapid.Bool().Draw(t, "selects") {
					j.Selector = map[string]string{"a": "b"}
				}
				q.add(len(jobs), &j)
				list = append(list, len(jobs))
				jobs = append(jobs, j)
			}
			room := sched.Resources{
				MilliCPU: rapid.Int64Range(0, 12).Draw(t, "room"), Memory: rapid.Int64Range(0, 6).Draw(t, "space"),
			}
			// jobs with a number divisible by refused are left in place
			refused := rapid.IntRange(0, 5).Draw(t, "refused")
			selected := rapid.Bool().Draw(t, "selected jobs fit") // otherwise their line is dropped
			fits := func(job int) bool { return selected || jobs[job].Selector == nil }
			stays := func(job int) bool { return refused > 0 && job%refused == 0 }

			var want []int
			left, rest := room, list[:0:0]
			for _, job := range list {
				if !jobs[job].Request.Within(left) || !fits(job) {
					rest = append(rest, job)
					continue
				}
				want = append(want, job)
				if stays(job) {
					rest = append(rest, job)
					continue
				}
				left = left.Sub(jobs[job].Request)
			}
			list = rest

			var got []int
			q.begin(room)
			for k := q.next(room); k >= 0; k = q.next(room) {
				job := int(q.lines[k].head().job)
				if !fits(job) {
					q.drop(k)
					continue
				}
				got = append(got, job)
				if stays(job) {
					q.skip(k)
					continue
				}
				q.pop(k)
				room = room.Sub(jobs[job].Request)
			}
			q.end()
			if !slices.Equal(got, want) || q.length != len(list) {
				t.Fatalf("tried jobs %v with %d remaining, want %v and %d", got, q.length, want, len(list))
			}
		}
	})
}
