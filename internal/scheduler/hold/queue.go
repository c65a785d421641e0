package hold

import (
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// queue keeps the holds of one kind and decides which to release when. It does no I/O and reads no clock. What it costs
// to ask it grows with what there is to do, not with what is held, but for a pass over plain memory where deadlines
// have changed.
type queue struct {
	kind  string // kindJob or kindPod
	byUID map[types.UID]*hold
	order deadlines // of those whose release was not tried yet
	dirty bool      // their spread is out of date

	// By state: waiting by window, opened and freed by turn, retrying by the time of the next attempt.
	heaps    [states]holdHeap
	attempts int // how many are releasing

	askers holdHeap // to be planned at some instant, news or not
	todo   []*hold  // to be planned now
	viewed *kube.View

	pace       *pace
	congestion *congestion
	limits     *limits
	watts      func(*hold) energy.Watts // expected of a hold when it runs; asked only if the limits have a ramp
}

func newQueue(kind string, p *pace, c *congestion, l *limits) *queue {
	q := &queue{kind: kind, byUID: map[types.UID]*hold{}, pace: p, congestion: c, limits: l}
	for s := range q.heaps {
		q.heaps[s] = holdHeap{before: byRank, at: func(h *hold) *int32 { return &h.heapAt }}
	}
	q.heaps[waiting].before = byWindow
	q.heaps[retrying].before = func(a, b *hold) bool { return a.retry.Before(b.retry) }
	q.askers = holdHeap{
		before: func(a, b *hold) bool { return a.again.Before(b.again) },
		at:     func(h *hold) *int32 { return &h.askAt },
	}
	return q
}

// A standby waits this long after an instant that the Lease holder should have acted on, but never past the deadline.
const standbyLag = time.Second

// maxAttempts bounds the attempts under way, deadlines not counted: those wait for no more than these.
const maxAttempts = 128

// add takes in a hold, in the state that it has or waiting.
func (q *queue) add(h *hold) {
	q.byUID[h.UID], h.queue = h, q
	q.order.add(h)
	q.dirty = true
	q.enter(h, max(h.state, waiting))
	q.plan(h)
}

func (q *queue) remove(h *hold) {
	q.order.drop(h)
	q.dirty = true
	q.enter(h, gone)
	q.askers.drop(h)
	delete(q.byUID, h.UID)
}

// enter moves a hold into a state, and into the heap of those that wait in it.
func (q *queue) enter(h *hold, s state) {
	q.heaps[h.state].drop(h)
	if h.state == releasing {
		q.attempts--
	}
	h.state = s
	switch s {
	case waiting:
		if !h.rolls {
			q.heaps[s].add(h)
		}
	case opened, freed, retrying:
		q.heaps[s].add(h)
	case releasing:
		q.attempts++
	}
}

// free lets go what nothing holds. Released is final: a hold that is being released stays so.
func (q *queue) free(h *hold, why string) {
	if h.state < releasing {
		h.reason, h.kind = unique.Make(why), sched.NoOpinion
		q.enter(h, freed)
	}
}

// letGo frees what could not be taken in, of which seen is what is known: nothing else would.
func (q *queue) letGo(seen *hold) {
	h := q.byUID[seen.UID]
	if h == nil {
		h = seen
		q.add(h)
	}
	q.free(h, unreadable)
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
// are more. Those that wait since an earlier view come first, so views that come fast keep none from being planned.
func (q *queue) outdated(view *kube.View, now time.Time, n int) (some []*hold, more bool) {
	if q.viewed != view {
		q.viewed = view
		q.order.sort()
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

// spread computes when each hold must be released for its deadline, if that is out of date.
func (q *queue) spread() {
	if q.dirty {
		q.dirty = false
		q.order.sort()
		q.order.spread(q.pace.lead(), q.pace.gap())
	}
}

// due returns what is to be released now, and counts it as being released. Deadlines obey no limit. Without early there
// is nothing else; with it, what waits for its turn gets it as the cluster keeps up and the limits allow. Windows open
// either way, so that a replica that begins to act early finds them open.
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
		q.release(h)
	}
	for h := q.heaps[retrying].first(); h != nil && !now.Before(h.retry); h = q.heaps[retrying].first() {
		due = append(due, h)
		q.release(h)
	}
	q.wake(now)
	if !early {
		return due
	}
	for h := q.heaps[freed].first(); h != nil && q.attempts < maxAttempts; h = q.heaps[freed].first() {
		due = append(due, h)
		q.release(h)
	}
	for h := q.heaps[opened].first(); h != nil && q.attempts < maxAttempts && q.congestion.mayRelease(now, len(due)) &&
		q.limits.allow(now, q.draw(h)); h = q.heaps[opened].first() {
		due = append(due, h)
		q.release(h)
	}
	return due
}

// wake moves holds whose window opens to those that wait for their turn.
func (q *queue) wake(now time.Time) {
	lead := q.pace.lead()
	for h := q.heaps[waiting].first(); h != nil && !now.Add(lead).Before(h.start); h = q.heaps[waiting].first() {
		q.enter(h, opened)
	}
}

func (q *queue) draw(h *hold) energy.Watts {
	if q.limits.ramp() {
		return q.watts(h)
	}
	return 0
}

// release begins an attempt.
func (q *queue) release(h *hold) {
	if q.order.drop(h) {
		q.dirty = true
	}
	if h.state != retrying {
		h.left = h.state
	}
	q.enter(h, releasing)
}

// fail lets an attempt be repeated at an instant.
func (q *queue) fail(h *hold, retry time.Time) {
	if h.state == releasing { // else it was lost meanwhile
		h.retry = retry
		q.enter(h, retrying)
	}
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
	if h := q.heaps[retrying].first(); h != nil {
		sooner(h.retry)
	}
	if !early {
		return at
	}
	if h := q.heaps[waiting].first(); h != nil {
		sooner(h.start.Add(-q.pace.lead()))
	}
	if q.heaps[freed].first() != nil && q.attempts < maxAttempts {
		sooner(now)
	}
	if h := q.heaps[opened].first(); h != nil && q.attempts < maxAttempts {
		if room := q.congestion.nextRelease(now); !room.IsZero() {
			sooner(timeutil.Later(room, q.limits.when(now, q.draw(h))))
		}
	}
	return at
}
