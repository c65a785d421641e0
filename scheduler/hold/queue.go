package hold

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
)

// place is what a hold waits for.
type place uint8

const (
	nowhere place = iota // it was never added, or is gone
	asleep               // its window
	rolling              // nothing but another plan and its deadline
	open                 // its turn
	free                 // nothing: it is let go as soon as somebody comes to it
	taken                // the end of an attempt to release it
	failed               // another attempt
)

// queue keeps the holds of one kind and says which to release when. It does no I/O and reads no clock. What it costs
// to ask it grows with what there is to do, not with what is held, but for a pass over plain memory where deadlines
// have changed.
type queue struct {
	byUID map[types.UID]*hold
	order deadlines // of those that nobody has tried to release yet
	dirty bool      // their spread is out of date

	sleepers, waiters, idlers holdHeap // asleep by window, open by turn, free by turn
	retries                   holdHeap // failed, by when they are tried again
	attempts                  int      // taken

	askers holdHeap // to be planned at some instant, news or not
	todo   []*hold  // to be planned now
	viewed *kube.View

	pace   *pace
	flight *flight
	limits *limits
	watts  func(*hold) energy.Watts // what it is expected to draw; asked only if the limits have a ramp
}

func newQueue(p *pace, f *flight, l *limits) *queue {
	return &queue{
		byUID: map[types.UID]*hold{}, pace: p, flight: f, limits: l,
		sleepers: holdHeap{before: opens, at: index},
		waiters:  holdHeap{before: turns, at: index},
		idlers:   holdHeap{before: turns, at: index},
		retries:  holdHeap{before: func(a, b *hold) bool { return a.retry.Before(b.retry) }, at: index},
		askers:   holdHeap{before: func(a, b *hold) bool { return a.again.Before(b.again) }, at: askIndex},
	}
}

// A standby waits this long after an instant that the Lease holder should have acted on, but never past the deadline.
const standbyLag = time.Second

// mostAttempts bounds the attempts under way, deadlines not counted: those wait for no more than these.
const mostAttempts = 128

func (q *queue) add(h *hold) {
	q.byUID[h.uid] = h
	q.order.add(h)
	q.dirty = true
	q.put(h)
	q.plan(h)
}

func (q *queue) remove(h *hold) {
	q.order.drop(h)
	q.dirty = true
	q.leave(h)
	q.askers.drop(h)
	h.place = nowhere
	delete(q.byUID, h.uid)
}

// leave takes the hold from where it waits.
func (q *queue) leave(h *hold) {
	switch h.place {
	case asleep:
		q.sleepers.drop(h)
	case open:
		q.waiters.drop(h)
	case free:
		q.idlers.drop(h)
	case taken:
		q.attempts--
	case failed:
		q.retries.drop(h)
	}
}

// put lets the hold wait for what its plan says. One that was decided to be released stays so.
func (q *queue) put(h *hold) {
	if h.place == taken || h.place == failed {
		return
	}
	q.leave(h)
	switch {
	case h.unheld:
		h.place = free
		q.idlers.add(h)
	case h.opened:
		h.place = open
		q.waiters.add(h)
	case h.rolls:
		h.place = rolling
	default:
		h.place = asleep
		q.sleepers.add(h)
	}
}

// move changes the deadline of a hold that is in the queue.
func (q *queue) move(h *hold, latest time.Time) {
	if h.latest.Equal(latest) {
		return
	}
	waits := q.order.drop(h)
	h.latest = latest
	if waits {
		q.order.add(h)
		q.dirty = true
	}
}

// plan lets the hold be planned again.
func (q *queue) plan(h *hold) {
	h.seen = nil
	q.list(h)
}

func (q *queue) list(h *hold) {
	if !h.listed {
		h.listed = true
		q.todo = append(q.todo, h)
	}
}

// ask lets the hold be planned again at an instant; never if that is zero.
func (q *queue) ask(h *hold, at time.Time) {
	q.askers.drop(h)
	if h.again = at; !at.IsZero() {
		q.askers.add(h)
	}
}

// outdated returns at most n holds that are to be planned on a view, the earliest deadlines first, and whether there
// are more.
func (q *queue) outdated(view *kube.View, now time.Time, n int) (some []*hold, more bool) {
	if q.viewed != view {
		q.viewed = view
		q.order.settle()
		for h := range q.order.all() {
			q.list(h)
		}
	}
	for h := q.askers.first(); h != nil && !now.Before(h.again); h = q.askers.first() {
		q.askers.drop(h)
		q.plan(h)
	}
	n = min(n, len(q.todo))
	some, q.todo = q.todo[:n], q.todo[n:]
	if len(q.todo) == 0 {
		q.todo = nil
	}
	for _, h := range some {
		h.listed = false
	}
	return some, len(q.todo) > 0
}

// plannable reports whether a view may change anything for the hold: its plan, or, once its window has opened, its
// deadline.
func (h *hold) plannable(view *kube.View) bool {
	switch h.place {
	case asleep, rolling, open:
		return h.seen != view && !h.waiting
	default:
		return false
	}
}

// spread says of each hold when it must be released for its deadline.
func (q *queue) spread() {
	if q.dirty {
		q.dirty = false
		q.order.settle()
		q.order.spread(q.pace.lead(), q.pace.gap())
	}
}

// due returns what is to be released now, and counts it as taken. Deadlines obey no limit. Without early there is
// nothing else; with it, what waits for its turn gets it as the cluster keeps up and the limits allow. Windows open
// either way, so that one who begins to act early finds open what was.
func (q *queue) due(now time.Time, early bool) []*hold {
	q.spread()
	var due []*hold
	for h, deadline := range q.order.all() {
		if now.Before(deadline.lastCall(early)) {
			break // all after it are later: see deadlines.spread
		}
		q.limits.force(now, q.draw(h))
		h.forced = true
		due = append(due, h)
	}
	for _, h := range due {
		q.take(h)
	}
	for h := q.retries.first(); h != nil && !now.Before(h.retry); h = q.retries.first() {
		due = append(due, h)
		q.take(h)
	}
	q.wake(now)
	if !early {
		return due
	}
	for h := q.idlers.first(); h != nil && q.attempts < mostAttempts; h = q.idlers.first() {
		due = append(due, h)
		q.take(h)
	}
	for h := q.waiters.first(); h != nil && q.attempts < mostAttempts && q.flight.room(now, len(due)) &&
		q.limits.allow(now, q.draw(h)); h = q.waiters.first() {
		due = append(due, h)
		q.take(h)
	}
	return due
}

// wake lets those wait for their turn whose window opens.
func (q *queue) wake(now time.Time) {
	lead := q.pace.lead()
	for h := q.sleepers.first(); h != nil && !now.Add(lead).Before(h.start); h = q.sleepers.first() {
		h.opened = true
		q.put(h)
	}
}

func (q *queue) draw(h *hold) energy.Watts {
	if q.limits.ramp() {
		return q.watts(h)
	}
	return 0
}

func (q *queue) take(h *hold) {
	q.leave(h)
	if q.order.drop(h) {
		q.dirty = true
	}
	h.place = taken
	q.attempts++
}

// fail lets an attempt be repeated at an instant.
func (q *queue) fail(h *hold, retry time.Time) {
	if h.place != taken {
		return // it was lost meanwhile
	}
	q.leave(h)
	h.place, h.retry = failed, retry
	q.retries.add(h)
}

// next returns when due may have something to return; the zero time if only news can change that.
func (q *queue) next(now time.Time, early bool) time.Time {
	q.spread()
	var at time.Time
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, deadline := range q.order.all() {
		sooner(deadline.lastCall(early))
		break
	}
	if h := q.retries.first(); h != nil {
		sooner(h.retry)
	}
	if !early {
		return at
	}
	if h := q.sleepers.first(); h != nil {
		sooner(h.start.Add(-q.pace.lead()))
	}
	if q.idlers.first() != nil && q.attempts < mostAttempts {
		sooner(now)
	}
	if h := q.waiters.first(); h != nil && q.attempts < mostAttempts {
		if room := q.flight.next(now); !room.IsZero() {
			sooner(later(room, q.limits.when(now, q.draw(h))))
		}
	}
	return at
}

func (q *queue) len() int { return len(q.byUID) }
