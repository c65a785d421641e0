package hold

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// unrecorded contains the decision for a hold until the owner has been notified and the decision is recorded.
type unrecorded struct {
	at     time.Time
	kind   sched.ReasonKind
	saving float64
	saved  energy.Grams
	of     int // number of jobs that were planned jointly, including this one
}

// recordHold records the hold after its owner has been notified.
func (l *Loop) recordHold(h *hold) {
	u := h.unrecorded
	if u == nil {
		return
	}
	h.unrecorded = nil
	view := h.seen
	if view == nil { // waiting to be planned again
		view = l.known()
	}
	job, settings := h.question(view)
	record.Decided(record.Hold, settings.Strategy(), u.kind.String())
	if l.c.Record == nil {
		return
	}
	e := h.entry(record.Hold, u.at, &settings)
	e.Start, e.Reason, e.Saving, e.Saved = h.start, u.kind.String(), u.saving, u.saved
	if h.seen != nil {
		l.locate(&job)
		e.Question = view.Question(u.at, job, settings)
	}
	// the question contains only this job, because savings are computed per job, see [Config.RecordPlan].
	if u.kind == sched.PlannedLater {
		e.Message += fmt.Sprintf("; part of a joint plan of %d jobs, the snapshot reproduces the rule window", u.of)
	}
	l.c.Record(e)
}

// recordRelease records the release of a hold if its owner was notified of the hold. It also counts objects that
// were not held at all.
func (l *Loop) recordRelease(h *hold, now time.Time, cause string) {
	_, settings := h.question(l.known())
	switch {
	case !h.reported.IsZero():
		record.Decided(record.Release, settings.Strategy(), cause)
		if h.left != freed && !h.rolls { // otherwise it was not planned to start now
			lateness.WithLabelValues(h.queue.kind).Observe(max(0, now.Sub(h.start).Seconds()))
		}
	case h.left == freed && h.why() != resumed:
		record.Decided(record.Refuse, settings.Strategy(), h.refusal())
	}
	if l.c.Record == nil || h.reported.IsZero() {
		return
	}
	e := h.entry(record.Release, now, &settings)
	e.Start, e.Reason = now, cause
	l.c.Record(e)
}

// refusal returns the reason for not holding the object, as the value of a metric label.
func (h *hold) refusal() string {
	switch {
	case h.wrong:
		return reasonNoEffect
	case h.kind == sched.NoOpinion: // the object was not planned
		return reasonNotHeld
	}
	return h.kind.String()
}

func (h *hold) entry(action string, at time.Time, settings *policy.Settings) *record.Entry {
	return &record.Entry{Record: ledger.Record{
		Action: action, At: at, Namespace: h.namespace(), OwnerKind: h.object().Kind, Owner: h.name,
		UID: string(h.UID), Strategy: settings.Strategy(), Message: h.why(),
	}}
}
