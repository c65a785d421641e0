package hold

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// start describes the release of an object that has not been bound to a node yet.
type start struct {
	departure

	queue  *queue
	latest time.Time
	ours   bool // released by this process, which counts it
}

// checkStarts is the interval between two checks for overdue starts.
const checkStarts = time.Second / 2

// forgetStart is the time after which a start no longer counts as a measurement of the cluster's speed.
const forgetStart = 5 * time.Minute

// endStart stops waiting for a start and returns it. It returns nil if the start was not awaited.
func (l *Loop) endStart(uid types.UID) *start {
	if st, ok := l.starts.LoadAndDelete(uid); ok {
		return st.(*start)
	}
	return nil
}

// awaitStart records the release of a hold and starts waiting for the object to be bound.
func (l *Loop) awaitStart(h *hold, now time.Time, ours bool) {
	if _, ok := l.starts.Load(h.UID); ok {
		return
	}
	latest := h.latest
	if h.cut {
		latest = now // the deadline had already passed when it was set, so no release could have met it
	}
	d := h.queue.congestion.released(now)
	l.starts.Store(h.UID, &start{departure: d, queue: h.queue, latest: latest, ours: ours})
}

// cancelStart stops waiting for a start that will not happen, or that is not a valid measurement of the cluster's
// speed.
func (l *Loop) cancelStart(uid types.UID) {
	if st := l.endStart(uid); st != nil {
		st.queue.congestion.forget(st.departure)
	}
}

// sawStart updates the measurements with a start.
func (l *Loop) sawStart(uid types.UID, at time.Time) {
	st := l.endStart(uid)
	if st == nil {
		return
	}
	q := st.queue
	q.congestion.started(at, st.departure)
	q.pace.observe(at, at.Sub(st.at), q.congestion.alone, st.ahead)
	q.dirty = true
	if st.ours {
		startLateness.WithLabelValues(q.kind).Observe(max(0, at.Sub(st.latest).Seconds()))
	}
}

// giveUpStarts marks overdue starts as lost, so that the next releases may proceed, and deletes them after
// forgetStart.
func (l *Loop) giveUpStarts(now time.Time) {
	if now.Sub(l.startsChecked) < checkStarts {
		return
	}
	l.startsChecked = now
	lost := map[*congestion]int{}
	for uid, of := range l.starts.Range {
		st := of.(*start)
		if c := st.queue.congestion; !st.lost && c.isOverdue(now, st.departure) {
			st.lost = true
			lost[c]++
		}
		if waited := now.Sub(st.at); waited > forgetStart && st.lost {
			l.endStart(uid.(types.UID))
		}
	}
	for c, n := range lost {
		c.giveUp(now, n)
	}
}
