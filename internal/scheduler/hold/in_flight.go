package hold

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// start is what is known of a release until the object is bound to a node.
type start struct {
	departure

	queue  *queue
	latest time.Time
	ours   bool // by this process, which then counts it
}

// checkStarts is how often it is looked whether some are overdue.
const checkStarts = time.Second / 2

// forgetStart is when a start is no longer expected to tell how fast the cluster is.
const forgetStart = 5 * time.Minute

// endStart ends the wait for a start; nil if there is none.
func (l *Loop) endStart(uid types.UID) *start {
	if st, ok := l.starts.LoadAndDelete(uid); ok {
		return st.(*start)
	}
	return nil
}

// awaitStart begins to follow what is released now.
func (l *Loop) awaitStart(h *hold, now time.Time, ours bool) {
	if _, ok := l.starts.Load(h.UID); ok {
		return
	}
	latest := h.latest
	if h.cut {
		latest = now // no release could have kept it
	}
	d := h.queue.congestion.released(now)
	l.starts.Store(h.UID, &start{departure: d, queue: h.queue, latest: latest, ours: ours})
}

// cancelStart forgets what will not start, or whose start will tell nothing about the cluster.
func (l *Loop) cancelStart(uid types.UID) {
	if st := l.endStart(uid); st != nil {
		st.queue.congestion.forget(st.departure)
	}
}

// sawStart learns from a start.
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

// giveUpStarts stops waiting for what does not start, so that others get their turn, and forgets it in the end.
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
