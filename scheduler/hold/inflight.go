package hold

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// starts follows what was released until it is bound to a node.
type starts struct {
	open     map[types.UID]*start
	awaiting *sync.Map // the UIDs, for those who see pods on other goroutines
	checked  time.Time
}

type start struct {
	departure

	kind   string
	latest time.Time
	ours   bool // by this process, which then counts it
}

// checkStarts is how often it is looked whether some are overdue.
const checkStarts = time.Second / 2

// giveUp is when a start is no longer expected to say anything about how fast the cluster is.
const giveUp = 5 * time.Minute

func newStarts(awaiting *sync.Map) starts {
	return starts{open: map[types.UID]*start{}, awaiting: awaiting}
}

func (s *starts) take(uid types.UID) *start {
	st := s.open[uid]
	if st != nil {
		delete(s.open, uid)
		s.awaiting.Delete(uid)
	}
	return st
}

// expect begins to follow what is released now.
func (l *Loop) expect(kind string, h *hold, now time.Time, ours bool) {
	if _, ok := l.started.open[h.uid]; ok {
		return
	}
	latest := h.latest
	if h.cut {
		latest = now // nobody could have kept it
	}
	l.started.open[h.uid] = &start{departure: l.queueOf(kind).flight.leave(now), kind: kind, latest: latest, ours: ours}
	l.awaiting.Store(h.uid, struct{}{})
}

// unexpect forgets what will not start, or of which it says nothing when it does.
func (l *Loop) unexpect(uid types.UID) {
	if st := l.started.take(uid); st != nil {
		l.queueOf(st.kind).flight.recall(st.departure)
	}
}

// begun takes note of a start.
func (l *Loop) begun(uid types.UID, at time.Time) {
	st := l.started.take(uid)
	if st == nil {
		return
	}
	q := l.queueOf(st.kind)
	q.flight.arrive(at, st.departure)
	q.pace.observe(at, at.Sub(st.at), q.flight.alone, st.ahead)
	q.dirty = true
	if st.ours {
		startLateness.WithLabelValues(st.kind).Observe(max(0, at.Sub(st.latest).Seconds()))
	}
}

// expire stops waiting for what does not start, so that others get their turn, and forgets it in the end.
func (l *Loop) expire(now time.Time) {
	if now.Sub(l.started.checked) < checkStarts {
		return
	}
	l.started.checked = now
	lost := map[*flight]int{}
	for uid, st := range l.started.open {
		if f := l.queueOf(st.kind).flight; !st.lost && f.overdue(now, st.departure) {
			st.lost = true
			lost[f]++
		}
		if waited := now.Sub(st.at); waited > giveUp && st.lost {
			l.started.take(uid)
		}
	}
	for f, n := range lost {
		f.giveUp(now, n)
	}
}
