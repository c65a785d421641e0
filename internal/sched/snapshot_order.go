package sched

import (
	"cmp"
	"maps"
	"slices"
)

// QueueOrder returns what jobs of a queue are served by, the least first.
type QueueOrder func(s *Snapshot) func(j *Job) float64

// QueueOrders are what may follow a strategy's when, as in "balanced+now/shortest". Durations are those that are
// expected of what is left: an order never knows more of a job than the snapshot says.
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

// Orders returns what strategy.New accepts after the "/" that may follow a when, sorted.
func Orders() []string { return slices.Sorted(maps.Keys(QueueOrders)) }

// sizeOf measures a request by the shares of all nodes together that it asks for, added up over CPU, memory and GPUs.
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

// InOrder returns the positions of the queue's jobs in the order in which they are served: by the order's key, then by
// submission and ID, whatever their order in the queue. Shorter IDs come first, so that 9 comes before 10.
func (s *Snapshot) InOrder(by QueueOrder) []int {
	positions := make([]int, len(s.Queue))
	keys := make([]float64, len(s.Queue))
	for i := range positions {
		positions[i] = i
	}
	if by != nil {
		key := by(s)
		for i := range s.Queue {
			keys[i] = key(&s.Queue[i])
		}
	}
	slices.SortFunc(positions, func(a, b int) int {
		x, y := &s.Queue[a], &s.Queue[b]
		return cmp.Or(cmp.Compare(keys[a], keys[b]), x.Submitted.Compare(y.Submitted),
			cmp.Compare(len(x.ID), len(y.ID)), cmp.Compare(x.ID, y.ID))
	})
	return positions
}
