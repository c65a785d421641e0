package hold

import (
	"time"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// Record is what was decided about a hold. The leading replica records a hold when it tells the owner of the work,
// and once its release.
type Record struct {
	Release         bool // else it is held, or held until another time
	At              time.Time
	Job             bool // else a pod
	Namespace, Name string
	UID             string
	Settings        policy.Settings
	Work            sched.Job
	View            *kube.View // what a hold was decided on
	Start           time.Time  // of the window; of a release, now
	Kind            string     // of the reason, in CamelCase
	Reason          string     // for people
}

// recordHold records that something is held.
func (l *Loop) recordHold(h *hold, job bool) {
	if l.record == nil || h.unrecorded == nil {
		return
	}
	r := h.recordAs(job, h.seen)
	r.At, r.View, r.Start, r.Kind, r.Reason = h.unrecorded.at, h.seen, h.start, h.unrecorded.kind.String(), h.why()
	h.unrecorded = nil
	l.record(r)
}

// recordRelease records that something was released.
func (l *Loop) recordRelease(h *hold, job bool, now time.Time, cause string) {
	if l.record == nil || h.said.IsZero() { // never told to wait
		return
	}
	r := h.recordAs(job, l.known())
	r.Release, r.At, r.View, r.Start, r.Kind, r.Reason = true, now, nil, now, cause, h.why()
	l.record(r)
}

func (h *hold) recordAs(job bool, view *kube.View) Record {
	work, settings := h.question(view)
	return Record{
		Job: job, Namespace: h.work.Namespace(), Name: h.work.Name(), UID: string(h.uid), Settings: settings,
		Work: work,
	}
}

// unrecorded is what a hold was decided by, until it is recorded.
type unrecorded struct {
	at   time.Time
	kind sched.ReasonKind
}

// keepHold keeps what recordHold will tell, if anybody records.
func (l *Loop) keepHold(h *hold, now time.Time, kind sched.ReasonKind) {
	if l.record != nil {
		h.unrecorded = &unrecorded{at: now, kind: kind}
	}
}
