package sched_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// TestTurn checks that a turn is at most the bound after the arrival, increases with the arrival and the expected run
// time, and that the order "aging" sorts a queue by it.
func TestTurn(t *testing.T) {
	start := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		expected := rapid.Int64Range(0, int64(3*sched.MaxShift))
		jobs := make([]sched.Job, rapid.IntRange(2, 9).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = sched.Job{
				ID: fmt.Sprint(i), Duration: time.Duration(expected.Draw(t, "expected")),
				Submitted: start.Add(time.Duration(rapid.Int64Range(0, int64(3*sched.MaxShift)).Draw(t, "arrival"))),
			}
		}
		turn := func(j *sched.Job) time.Time { return sched.Turn(j.Submitted, j.Duration, sched.MaxShift) }
		for i := range jobs {
			a := &jobs[i]
			if shift := turn(a).Sub(a.Submitted); shift < 0 || shift > sched.MaxShift || shift > a.Duration {
				t.Fatalf("shift of a job of %v is %v", a.Duration, shift)
			}
			for k := range jobs {
				b := &jobs[k]
				if !a.Submitted.After(b.Submitted) && a.Duration <= b.Duration && turn(a).After(turn(b)) {
					t.Fatalf("job %s arrives first and is not longer, but its turn is after that of job %s", a.ID, b.ID)
				}
			}
		}
		want := slices.Clone(jobs)
		slices.SortFunc(want, func(a, b sched.Job) int {
			return cmp.Or(turn(&a).Truncate(time.Microsecond).Compare(turn(&b).Truncate(time.Microsecond)),
				a.Submitted.Compare(b.Submitted), cmp.Compare(a.ID, b.ID))
		})
		s := sched.Snapshot{Now: start, Queue: jobs}
		for k, i := range s.InOrder(sched.QueueOrders[sched.Aging]) {
			if jobs[i].ID != want[k].ID {
				t.Fatalf("job %d of the queue is %s, want %s", k, jobs[i].ID, want[k].ID)
			}
		}
	})
}
