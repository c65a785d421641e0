package hold

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// queue orders the holds of one kind by their deadline and says which to release when. It does no I/O and reads no
// clock.
type queue struct {
	holds []*hold // by latest, then UID
	byUID map[types.UID]*hold
	pace  *pace
	slot  time.Time // when the next release before its deadline is allowed
	dirty bool      // releaseBy is out of date
	mixed bool      // holds is out of order
}

func newQueue(p *pace) *queue { return &queue{byUID: map[types.UID]*hold{}, pace: p} }

func (q *queue) add(h *hold) {
	if n := len(q.holds); n > 0 && q.holds[n-1].compare(h) > 0 {
		q.mixed = true
	}
	q.holds = append(q.holds, h)
	q.byUID[h.uid] = h
	q.dirty = true
}

func (q *queue) remove(h *hold) {
	q.sort()
	if i, ok := slices.BinarySearchFunc(q.holds, h, (*hold).compare); ok {
		q.holds = slices.Delete(q.holds, i, i+1)
	}
	delete(q.byUID, h.uid)
	q.dirty = true
}

// sort waits until order matters, so that a hundred thousand additions cost one sort.
func (q *queue) sort() {
	if q.mixed {
		slices.SortFunc(q.holds, (*hold).compare)
		q.mixed = false
	}
}

// move changes the deadline of a hold that is in the queue.
func (q *queue) move(h *hold, latest time.Time) {
	if h.latest.Equal(latest) {
		return
	}
	q.remove(h)
	h.latest = latest
	q.add(h)
}

// spread sets each hold's releaseBy: the last instant at which it can be let go such that, at the pace of the cluster,
// it and all that are due after it still start by their latest start.
func (q *queue) spread() {
	if !q.dirty {
		return
	}
	q.dirty = false
	q.sort()
	lead, gap := q.pace.lead(), q.pace.gap()
	var next time.Time
	for i, h := range slices.Backward(q.holds) {
		by := h.latest.Add(-lead)
		if i < len(q.holds)-1 && next.Add(-gap).Before(by) {
			by = next.Add(-gap)
		}
		h.releaseBy = by
		next = by
	}
}

// A standby waits this long after an instant that the Lease holder should have acted on, but never past the deadline.
const standbyLag = time.Second

// batchSpan is how much unused release capacity may be used at once.
const batchSpan = maxPause

// due returns what is to be released now, in the order of deadlines. Without early only deadlines count. Deadlines obey
// no limit; releases before a deadline keep the pace of the cluster.
func (q *queue) due(now time.Time, early bool) []*hold {
	q.spread()
	var due []*hold
	lead, gap := q.pace.lead(), q.pace.gap()
	if floor := now.Add(-batchSpan); q.slot.Before(floor) {
		q.slot = floor
	}
	for _, h := range q.holds {
		switch {
		case h.releasing || now.Before(h.retry):
		case !now.Before(h.lastCall(early)):
			due = append(due, h)
			q.slot = q.slot.Add(gap)
		case !early || now.Before(h.opens(lead)):
		case h.unheld: // it was never to wait, so it does not wait for a slot either
			due = append(due, h)
		case !q.slot.After(now):
			due = append(due, h)
			q.slot = q.slot.Add(gap)
		}
	}
	return due
}

// next returns when due has something to return again; the zero time if nothing is held.
func (q *queue) next(early bool) time.Time {
	q.spread()
	lead := q.pace.lead()
	var at time.Time
	for _, h := range q.holds {
		if h.releasing {
			continue
		}
		t := h.lastCall(early)
		if early {
			opens := h.opens(lead)
			if !h.unheld && opens.Before(q.slot) {
				opens = q.slot
			}
			t = earlier(t, opens)
		}
		if t.Before(h.retry) {
			t = h.retry
		}
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
