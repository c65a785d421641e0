package hold

import (
	"context"
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	recordutil "k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Reasons of the events.
const (
	reasonHeld           = "Held"
	reasonReleased       = "Released"
	reasonDeadlineForced = "DeadlineForced"
	reasonNotHeld        = "NotHeld"
	reasonNoEffect       = "NoEffect"
	reasonPaused         = "Paused"
	reasonNotPaused      = "NotPaused"
	reasonScaled         = "Scaled"
)

// Notes are written at a lower rate than releases, so that they do not delay releases under load.
const (
	maxNotes       = 4096
	noteWriters    = 4
	notesPerSecond = 200
	// if more notes are queued, only annotations and conditions are written, without events
	quietAbove  = maxNotes / 4
	maxRefusals = 5 // max failed notes per hold; after that, each plan is written at most once
	reporter    = "kubenergy-scheduler"
	// moves of a Job's start by more than this cause another event
	maxSilentMove = time.Hour

	// Events about releases and moves are limited further: the cluster is starting the released work at the same
	// time, and each event would cost about a tenth of a start.
	maxReleaseEvents       = 1024
	releaseEventsPerSecond = 10
	releaseEventBurst      = 50
)

// note is a best-effort write that only informs users.
type note func(context.Context) error

// enqueue adds a note to the queue. If the queue is full, enqueue drops the note and returns false.
func enqueue(notes chan<- note, n note) bool {
	select {
	case notes <- n:
		return true
	default:
		return false
	}
}

// startWriters starts the goroutines that write queued notes.
func (l *Loop) startWriters() {
	for range noteWriters {
		l.goes(func(ctx context.Context) {
			write(ctx, l.notes, flowcontrol.NewTokenBucketRateLimiter(notesPerSecond/noteWriters, notesPerSecond))
		})
	}
	l.goes(func(ctx context.Context) {
		write(ctx, l.releaseEvents, flowcontrol.NewTokenBucketRateLimiter(releaseEventsPerSecond, releaseEventBurst))
	})
}

func write(ctx context.Context, notes <-chan note, limit flowcontrol.RateLimiter) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-notes:
			if limit.Wait(ctx) != nil {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			if err := n(ctx); err != nil {
				klog.FromContext(ctx).V(2).Info("Failed to write to a held object", "error", err)
			}
			cancel()
		}
	}
}

// lead starts to release at windows, and notifies the owners of all holds that are already planned.
func (l *Loop) lead() {
	l.leads = true
	for _, q := range [2]*queue{l.pods, l.jobs} {
		q.order.sort()
		for h := range q.order.all() {
			l.explain(h)
		}
	}
}

// explain writes the reason for the hold to the object once per plan, and an event once per hold and per material
// move of a Job's start. If the queue is filling up, this is postponed.
func (l *Loop) explain(h *hold) {
	reported := h.reported
	if !l.leads || h.basis == unplanned || h.state != waiting && h.state != lookingUp || sameTime(h.start, reported) {
		return
	}
	if len(l.notes) > cap(l.notes)/2 {
		l.putOff(h)
		return
	}
	object, reason := h.object(), h.why()
	write := l.writeCondition(h)
	if h.queue == l.jobs {
		write = l.writeAnnotations(h)
	}
	// A pod's last reported start is unknown after a restart.
	moved := h.queue == l.jobs && !reported.IsZero() && h.start.Sub(reported).Abs() > maxSilentMove
	quietly := !reported.IsZero() || len(l.notes) > quietAbove
	event := func(ctx context.Context) error { return l.event(ctx, object, v1.EventTypeNormal, reasonHeld, reason) }
	queued := enqueue(l.notes, func(ctx context.Context) error {
		if err := write(ctx); err != nil {
			if !apierrors.IsNotFound(err) { // the object has changed: retry if it is still held
				l.post(func() {
					if h.refused = min(h.refused+1, maxRefusals); h.refused < maxRefusals {
						h.reported = reported
						l.putOff(h)
					}
				})
			}
			return err
		}
		switch {
		case moved:
			enqueue(l.releaseEvents, event)
		case !quietly:
			return event(ctx)
		}
		return nil
	})
	if queued {
		h.reported = h.start
		l.recordHold(h)
	}
}

func (l *Loop) putOff(h *hold) {
	if _, known := l.pendingNotes[h]; !known {
		l.pendingNotes[h] = struct{}{}
		l.notesInOrder = append(l.notesInOrder, h)
	}
}

// flushNotes writes postponed notes, oldest first, while the queue has capacity.
func (l *Loop) flushNotes() {
	for range min(cap(l.notes)/2-len(l.notes), len(l.notesInOrder)) {
		h := l.notesInOrder[0]
		if l.notesInOrder = l.notesInOrder[1:]; len(l.notesInOrder) == 0 {
			// Replace the map, because a map does not release memory when entries are deleted.
			l.notesInOrder, l.pendingNotes = nil, map[*hold]struct{}{}
		}
		delete(l.pendingNotes, h)
		l.explain(h) // if it panics, the remaining notes are written in the next iteration
	}
}

// object returns a reference to a Job or a pod, depending on the kind of the queue.
func (q *queue) object(uid types.UID, namespace, name string) v1.ObjectReference {
	ref := v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
	if q.kind == kindJob {
		ref.APIVersion, ref.Kind = "batch/v1", "Job"
	}
	return ref
}

// writeAnnotations returns a note that annotates the held Job with the reason, unless the Job has been released in
// the meantime.
func (l *Loop) writeAnnotations(h *hold) note {
	namespace, name := h.namespace(), h.name
	patch := h.SayPatch(map[string]string{
		v1alpha1.AnnotationHeldUntil:   h.start.UTC().Format(time.RFC3339),
		v1alpha1.AnnotationHeldReason:  h.why(),
		v1alpha1.AnnotationLatestStart: h.latest.UTC().Format(time.RFC3339),
	})
	return func(ctx context.Context) error {
		jobs := l.c.Client.BatchV1().Jobs(namespace)
		_, err := jobs.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
		return err
	}
}

// writeCondition returns a note that sets a condition on the held pod, which would otherwise look as if it had been
// ignored. The patch contains the resourceVersion, so that it fails if the pod has been bound in the meantime,
// because the condition would then be false.
func (l *Loop) writeCondition(h *hold) note {
	namespace, name := h.namespace(), h.name
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": h.UID, "resourceVersion": h.Version},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated,
			Message: h.why(), LastTransitionTime: metav1.NewTime(l.clock.Now()),
		}}},
	})
	return func(ctx context.Context) error {
		if err != nil {
			return err
		}
		_, err := l.c.Client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
		return err
	}
}

// heldBefore reports whether the pod has the condition that the loop sets. The API server sets a condition with the
// same reason on pods with scheduling gates, which remains until it is overwritten.
func heldBefore(pod *v1.Pod) bool {
	c := policy.Scheduled(pod)
	return c.Reason == v1.PodReasonSchedulingGated && c.Message != messageOfGates
}

// set by the API server on pods that are created with scheduling gates
const messageOfGates = "Scheduling is blocked due to non-empty scheduling gates"

// queueEvent queues an event about an object, if this replica leads.
func (l *Loop) queueEvent(object v1.ObjectReference, kind, reason, text string) {
	if l.leads {
		enqueue(l.notes, func(ctx context.Context) error { return l.event(ctx, object, kind, reason, text) })
	}
}

// released records a release. Only one replica counts the release and notifies the owner.
func (l *Loop) released(h *hold, now time.Time, ours bool) {
	if !ours {
		return
	}
	q, object := h.queue, h.object()
	cause := h.cause(now, q.pace.lead())
	heldFor.WithLabelValues(q.kind).Observe(max(0, (now.Sub(h.submitted) - h.alike.Value().Marks.Worked).Seconds()))
	releases.WithLabelValues(q.kind, cause).Inc()
	l.recordRelease(h, now, cause)
	if h.reported.IsZero() { // the owner was never notified of a hold
		if why := h.why(); q == l.jobs && h.left == freed && why != resumed {
			// The Job was suspended for a moment, so its owner may wonder why.
			kind, reason, text := v1.EventTypeNormal, reasonNotHeld, "not held: "+why
			if h.wrong {
				kind, reason, text = v1.EventTypeWarning, reasonNoEffect, why
			}
			enqueue(l.notes, func(ctx context.Context) error { return l.event(ctx, object, kind, reason, text) })
		}
		return
	}
	kind, reason, text := v1.EventTypeNormal, cause, "the allowed delay has passed"
	switch {
	case h.left == freed && h.wrong:
		kind, reason, text = v1.EventTypeWarning, reasonNoEffect, h.why()
	case h.left == freed:
		text = h.why()
	case h.left == opened && now.Add(q.pace.lead()).Before(h.start):
		text = "started ahead of its planned start: " + h.why()
	case cause == reasonReleased:
		text = "the planned window has started"
	}
	// Under load most of these events are dropped, and only the metrics and the decision records show the release.
	enqueue(l.releaseEvents, func(ctx context.Context) error {
		return l.event(ctx, object, kind, reason, text)
	})
}

func (l *Loop) event(ctx context.Context, object v1.ObjectReference, kind, reason, text string) error {
	now := time.Now()
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: object.Namespace,
			Name:      recordutil.GenerateEventName(object.Name, now.UnixNano()+l.events.Add(1)),
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: reporter, ReportingInstance: l.identity,
		Action: "Holding", Reason: reason, Regarding: object, Note: noteOf(text), Type: kind,
	}
	_, err := l.c.Client.EventsV1().Events(object.Namespace).Create(ctx, event, metav1.CreateOptions{})
	return err
}

// noteOf truncates a text to the length that the API server accepts for the note of an event.
func noteOf(text string) string { return humanize.Truncated(text, 1024) }
