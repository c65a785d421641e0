package hold

import (
	"time"

	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/scheduler/record"
)

// unrecorded is what a hold was decided by, until its owner is told and it is recorded.
type unrecorded struct {
	at   time.Time
	kind sched.ReasonKind
}

// recordHold records a hold whose owner was told.
func (l *Loop) recordHold(h *hold) {
	u := h.unrecorded
	if u == nil {
		return
	}
	h.unrecorded = nil
	view := h.seen
	if view == nil { // it is to be planned again
		view = l.known()
	}
	job, settings := h.question(view)
	e := h.entry(record.Hold, u.at, &settings)
	e.Start, e.Reason = h.start, u.kind.String()
	if h.seen != nil {
		e.Question = view.Question(u.at, job, settings)
	}
	l.record(e)
}

// recordRelease records the release of a hold whose owner was told to wait.
func (l *Loop) recordRelease(h *hold, now time.Time, cause string) {
	if l.record == nil || h.told.IsZero() {
		return
	}
	_, settings := h.question(l.known())
	e := h.entry(record.Release, now, &settings)
	e.Start, e.Reason = now, cause
	l.record(e)
}

func (h *hold) entry(action string, at time.Time, settings *policy.Settings) *record.Entry {
	return &record.Entry{Record: ledger.Record{
		Action: action, At: at, Namespace: h.namespace(), OwnerKind: h.object().Kind, Owner: h.name,
		UID: string(h.UID), Strategy: settings.Strategy(), Message: h.why(),
	}}
}
