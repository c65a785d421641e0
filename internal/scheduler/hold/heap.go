package hold

import "container/heap"

// holdHeap gives the first of some holds, and drops any of them, in logarithmic time.
type holdHeap struct {
	holds  []*hold
	before func(a, b *hold) bool
	at     func(*hold) *int32 // where a hold keeps its place, counted from 1; 0: it is in no such heap
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

// heapOrder is what container/heap needs of a holdHeap.
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
