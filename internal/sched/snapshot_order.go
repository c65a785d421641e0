package sched

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// QueueOrder returns the sort key of the jobs of a queue. Jobs with smaller keys are served first.
type QueueOrder func(s *Snapshot) func(j *Job) float64

// QueueOrders are the orders that may follow a start rule, as in "balanced+now/shortest". Run times are the
// expected remaining run times, so an order never depends on data that is not in the snapshot.
var QueueOrders = map[string]QueueOrder{
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
