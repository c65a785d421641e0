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

// unrecorded is what a hold was decided by, until its owner is told and it is recorded.
type unrecorded struct {
	at     time.Time
	kind   sched.ReasonKind
	saving float64
	saved  energy.Grams
	of     int // that it was planned together with, itself included
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
	if u.kind == sched.PlannedLater { // the question is of it alone, which is what savings are of: [Config.RecordPlan]
		e.Message += fmt.Sprintf("; one of %d that are planned together: alone it is decided as by window", u.of)
	}
	l.c.Record(e)
}

// recordRelease records the release of a hold whose owner was told to wait, and counts what was not held at all.
func (l *Loop) recordRelease(h *hold, now time.Time, cause string) {
	_, settings := h.question(l.known())
	switch {
	case !h.reported.IsZero():
		record.Decided(record.Release, settings.Strategy(), cause)
		if h.left != freed && !h.rolls { // else it was not planned for now
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

// refusal is why nothing keeps a hold, as the metrics have it.
func (h *hold) refusal() string {
	switch {
	case h.wrong:
		return reasonNoEffect
	case h.kind == sched.NoOpinion: // no plan was made of it
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
