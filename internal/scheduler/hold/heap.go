package hold

import "container/heap"

// holdHeap is a heap of holds. Adding and removing any hold takes logarithmic time.
type holdHeap struct {
	holds  []*hold
	before func(a, b *hold) bool
	// returns the field that stores the position of a hold, counted from 1; 0 if the hold is not in the heap
	at func(*hold) *int32
}

func (q *holdHeap) first() *hold {
	if len(q.holds) == 0 {
		return nil
	}
	return q.holds[0]
}

func (q *holdHeap) add(h *hold) { heap.Push((*heapOrder)(q), h) }

func (q *holdHeap) drop(h *hold) {
	if at := *q.at(h); at > 0 {
		heap.Remove((*heapOrder)(q), int(at-1))
	}
}

// heapOrder implements heap.Interface for a holdHeap.
type heapOrder holdHeap

func (q *heapOrder) Len() int           { return len(q.holds) }
func (q *heapOrder) Less(i, j int) bool { return q.before(q.holds[i], q.holds[j]) }

func (q *heapOrder) Swap(i, j int) {
	q.holds[i], q.holds[j] = q.holds[j], q.holds[i]
	*q.at(q.holds[i]), *q.at(q.holds[j]) = int32(i+1), int32(j+1)
}

func (q *heapOrder) Push(x any) {
	h := x.(*hold)
	q.holds = append(q.holds, h)
	*q.at(h) = int32(len(q.holds))
}

func (q *heapOrder) Pop() any {
	last := len(q.holds) - 1
	h := q.holds[last]
	q.holds[last] = nil
	q.holds = q.holds[:last]
	*q.at(h) = 0
	return h
}
