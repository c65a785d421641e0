package sched

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// QueueOrder returns the sort key of the jobs of a queue. Jobs with smaller keys are served first.
type QueueOrder func(s *Snapshot) func(j *Job) float64

// QueueOrders are the orders that may follow a start rule, as in "balanced+now/shortest". Run times are the
// expected remaining run times, so an order never depends on data that is not in the snapshot.
var QueueOrders = map[string]QueueOrder{
	Aging: func(*Snapshot) func(*Job) float64 {
		return func(j *Job) float64 {
			return float64(Turn(j.Submitted, j.Remaining(), MaxShift).UnixMicro()) // exact in float64 for centuries
		}
	},
	"fifo": func(*Snapshot) func(*Job) float64 { return func(*Job) float64 { return 0 } },
	"shortest": func(*Snapshot) func(*Job) float64 {
		return func(j *Job) float64 { return j.Remaining().Seconds() }
	},
	"smallest": sizeOf,
	"least-work": func(s *Snapshot) func(*Job) float64 {
		size := sizeOf(s)
		return func(j *Job) float64 { return size(j) * j.Remaining().Seconds() }
	},
}

// Aging is the order of [Turn], the only order other than that of arrival that has an effect on a cluster.
const Aging = "aging"

// MaxShift is the bound of [Turn] in simulations and clusters. On ECSched's trace with 40 machines, the order lowers
// the mean completion time by 1 % with a bound of 15 minutes, and by 17 % with an hour. An hour is also the default
// of the expected run time.
const MaxShift = time.Hour

// Turn returns the time at which a job would have had to arrive to have its position in the queue if the order were
// that of arrival: arrival + min(bound, expected run time). With an unlimited bound, this is the expected end of a job
// that starts on arrival. It does not change while the job waits, so that the order is total, and each job precedes all
// jobs that arrive later than bound after it. It is never before the arrival.
func Turn(arrival time.Time, expected, bound time.Duration) time.Time {
	return arrival.Add(max(0, min(expected, bound)))
}

// Orders returns the sorted names of queue orders that strategy.New accepts after the "/" of a start rule.
func Orders() []string { return slices.Sorted(maps.Keys(QueueOrders)) }

// sizeOf returns a function that measures a request as the sum of its fractions of the total CPU, memory and GPUs
// of all nodes.
func sizeOf(s *Snapshot) func(j *Job) float64 {
	var all Resources
	for _, n := range s.Nodes {
		for range n.Multiplicity() {
			all = all.Add(n.Capacity)
		}
	}
	total := all.Vector()
	return func(j *Job) (size float64) {
		for k, requested := range j.Request.Vector() {
			if total[k] > 0 {
				size += float64(requested) / float64(total[k])
			}
		}
		return size
	}
}

// InOrder returns the positions of the queue's jobs in the order in which they are served: sorted by the key of the
// order, then by submission and ID. The order of the queue does not matter. Shorter IDs sort first, so that 9 comes
// before 10.
func (s *Snapshot) InOrder(by QueueOrder) []int {
	keys := make([]float64, len(s.Queue))
	if by != nil {
		key := by(s)
		for i := range s.Queue {
			keys[i] = key(&s.Queue[i])
		}
	}
	return sliceutil.Order(len(s.Queue), func(a, b int) int {
		x, y := &s.Queue[a], &s.Queue[b]
		return cmp.Or(cmp.Compare(keys[a], keys[b]), x.Submitted.Compare(y.Submitted),
			cmp.Compare(len(x.ID), len(y.ID)), cmp.Compare(x.ID, y.ID))
	})
}
