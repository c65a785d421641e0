package hold

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// starts follows what was released until it is bound to a node.
type starts struct {
	open     map[types.UID]start
	pending  map[string]int
	awaiting *sync.Map // the UIDs, for those who see pods on other goroutines
	checked  time.Time
}

type start struct {
	kind             string
	released, latest time.Time
	ahead            int  // released before it and not started then
	ours             bool // by this process, which then counts it
}

// giveUp is when a start is no longer expected to say anything about how fast the cluster is.
const giveUp = 5 * time.Minute

func newStarts(awaiting *sync.Map) starts {
	return starts{open: map[types.UID]start{}, pending: map[string]int{}, awaiting: awaiting}
}

func (s *starts) expect(uid types.UID, st start) {
	if _, ok := s.open[uid]; ok {
		return
	}
	st.ahead = s.pending[st.kind]
	s.open[uid] = st
	s.pending[st.kind]++
	s.awaiting.Store(uid, struct{}{})
}

func (s *starts) take(uid types.UID) (st start, ok bool) {
	if st, ok = s.open[uid]; ok {
		delete(s.open, uid)
		s.pending[st.kind]--
		s.awaiting.Delete(uid)
	}
	return st, ok
}

// expire drops what has not started for long.
func (s *starts) expire(now time.Time) {
	if now.Sub(s.checked) < giveUp/10 {
		return
	}
	s.checked = now
	for uid, st := range s.open {
		if now.Sub(st.released) > giveUp {
			s.take(uid)
		}
	}
}

// begun takes note of a start.
func (l *Loop) begun(uid types.UID, at time.Time) {
	st, ok := l.started.take(uid)
	if !ok {
		return
	}
	q := l.pods
	if st.kind == kindJob {
		q = l.jobs
	}
	q.pace.observe(at.Sub(st.released), st.ahead)
	q.dirty = true
	if st.ours {
		startLateness.WithLabelValues(st.kind).Observe(max(0, at.Sub(st.latest).Seconds()))
	}
}
