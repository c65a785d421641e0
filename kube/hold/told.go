package hold

import (
	"time"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

// Told is what was decided about a hold, for who records it. The leading replica tells of a hold when it tells the owner of
// the work, and once of its release.
type Told struct {
	Release         bool // else it is held, or held until another time
	At              time.Time
	Job             bool // else a pod
	Namespace, Name string
	UID             string
	Settings        kube.Settings
	Work            sched.Job
	View            *kube.View // what a hold was decided on
	Start           time.Time  // of the window; of a release, now
	Kind            string     // of the reason, in CamelCase
	Reason          string     // for people
}

// tellHold tells that something is held.
func (l *Loop) tellHold(h *hold, job bool) {
	if l.told == nil || h.decided == nil {
		return
	}
	t := h.tellAs(job)
	t.At, t.View, t.Start, t.Kind, t.Reason = h.decided.at, h.seen, h.start, h.decided.kind.String(), h.reason
	h.decided = nil
	l.told(t)
}

// tellRelease tells that something was released.
func (l *Loop) tellRelease(h *hold, job bool, now time.Time, cause string) {
	if l.told == nil || h.said.IsZero() { // never told to wait
		return
	}
	t := h.tellAs(job)
	t.Release, t.At, t.View, t.Start, t.Kind, t.Reason = true, now, nil, now, cause, h.reason
	l.told(t)
}

func (h *hold) tellAs(job bool) Told {
	return Told{Job: job, Namespace: h.namespace, Name: h.name, UID: string(h.uid), Settings: h.settings, Work: h.job}
}

// decided is what a hold was decided by, until it is told.
type decided struct {
	at   time.Time
	kind sched.ReasonKind
}

// noteHold keeps what tellHold will tell, if anybody listens.
func (l *Loop) noteHold(h *hold, now time.Time, kind sched.ReasonKind) {
	if l.told != nil {
		h.decided = &decided{at: now, kind: kind}
	}
}
