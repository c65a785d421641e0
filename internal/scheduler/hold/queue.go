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

// queue contains the holds of one kind and decides when to release them. It performs no I/O and does not read the
// clock. The cost of its methods depends on the number of due holds rather than on the total number, except for one
// pass over all holds after deadlines have changed.
type queue struct {
	kind  string // kindJob or kindPod
	byUID map[types.UID]*hold
	order deadlines // holds without an attempt to release them
	dirty bool      // the release times of order must be recomputed

	// One heap per state: waiting by window, opened and freed by rank, retrying by the time of the next attempt.
	heaps    [states]holdHeap
	attempts int // number of holds in the state releasing

	askers holdHeap // holds to be planned at a certain time even if nothing has changed
	todo   []*hold  // holds to be planned now
	viewed *kube.View

	pace       *pace
	congestion *congestion
	limits     *limits
	watts      func(*hold) energy.Watts // expected power of a running hold; called only if the power ramp is limited
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

// standbyLag is the extra time after which a standby performs a release that the Lease holder should have
// performed. The deadline is met regardless.
const standbyLag = time.Second

// maxAttempts is the max number of concurrent attempts, except for deadlines, which only wait for requests in
// progress.
const maxAttempts = 128

// add adds a hold in its current state, or in the state waiting if it is gone.
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

// enter moves a hold to a state and to the heap of that state, if any.
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

// free marks a hold for release because there is no longer a reason to hold it. It has no effect if the release has
// already started.
func (q *queue) free(h *hold, why string) {
	if h.state < releasing {
		h.reason, h.kind = unique.Make(why), sched.NoOpinion
		q.enter(h, freed)
	}
}

// letGo frees an object after its processing failed, because it would otherwise be held forever. seen is used if
// the object has no hold yet.
func (q *queue) letGo(seen *hold) {
	h := q.byUID[seen.UID]
	if h == nil {
		h = seen
		q.add(h)
	}
	q.free(h, unreadable)
}

// setLatest changes the deadline of a hold, which is at least its creation time, and schedules the hold for planning.
func (q *queue) setLatest(h *hold, latest time.Time) {
	if latest = timeutil.Later(latest, h.submitted); !h.latest.Equal(latest) {
		waits := q.order.drop(h)
		h.latest = latest
		if waits {
			q.order.add(h)
			q.dirty = true
		}
	}
	h.start = timeutil.Earlier(h.start, h.latest)
	q.enter(h, h.state)
	q.plan(h)
}

// plan schedules the hold for planning.
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

// ask schedules the hold for planning at the given time, or cancels that if the time is zero.
func (q *queue) ask(h *hold, at time.Time) {
	q.askers.drop(h)
	if h.again = at; !at.IsZero() {
		q.askers.add(h)
	}
}

// outdated returns at most n holds that must be planned with the view, and whether there are more. Holds that were
// listed for an earlier view come first, so that frequent updates of the view do not starve any hold. The order is
// otherwise that of the deadlines.
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

// spread recomputes the release times for the deadlines if they are out of date.
func (q *queue) spread() {
	if q.dirty {
		q.dirty = false
		q.order.sort()
		q.order.spread(q.pace.lead(), q.pace.gap())
	}
}

// due returns the holds to release now and moves them to the state releasing. Deadlines are not subject to any
// limit. If early is false, only deadlines and retries are returned. Otherwise, holds that have their turn are
// returned as well, within the limits and as fast as the cluster starts them. Windows are opened in both cases, so
// that a replica that becomes the leader finds them open.
func (q *queue) due(now time.Time, early bool) []*hold {
	q.spread()
	var due []*hold
	for h, deadline := range q.order.all() {
		if now.Before(deadline.lastCall(early)) {
			break // the remaining holds are due later, see deadlines.spread
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

// wake moves waiting holds to the state opened when their window opens.
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

// release starts an attempt to release the hold.
func (q *queue) release(h *hold) {
	if q.order.drop(h) {
		q.dirty = true
	}
	if h.state != retrying {
		h.left = h.state
	}
	q.enter(h, releasing)
}

// fail schedules the next attempt to release a hold after a failed one.
func (q *queue) fail(h *hold, retry time.Time) {
	if h.state == releasing { // otherwise the object was deleted in the meantime
		h.retry = retry
		q.enter(h, retrying)
	}
}

// next returns the earliest time at which due may return a hold, or the zero time if that depends on new events.
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
