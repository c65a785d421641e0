package hold

import (
	"context"
	"encoding/json"
	"strings"
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
	"github.com/kubenergy/kubenergy/internal/policy"
)

// The reasons of our events.
const (
	reasonHeld           = "Held"
	reasonReleased       = "Released"
	reasonDeadlineForced = "DeadlineForced"
	reasonNotHeld        = "NotHeld"
	reasonNoEffect       = "NoEffect"
)

// Writers of notes are slower than releases, so that in a rush they do not stand in their way.
const (
	maxNotes       = 4096
	noteWriters    = 4
	notesPerSecond = 200
	// with more on the way, annotations or the condition alone tell that something is held, and no event
	quietAbove  = maxNotes / 4
	maxRefusals = 5 // of notes on one hold; after that each plan is told once, written or not
	reporter    = "kubenergy-scheduler"

	// Events of releases come while the cluster starts what was let go, and each would cost it a tenth of a start.
	maxReleaseEvents       = 1024
	releaseEventsPerSecond = 10
	releaseEventBurst      = 50
)

// note is a write that only informs.
type note func(context.Context) error

// enqueue queues a note; where too many wait it is lost, and enqueue returns false.
func enqueue(notes chan<- note, n note) bool {
	select {
	case notes <- n:
		return true
	default:
		return false
	}
}

// startWriters starts the goroutines that write what was queued.
func (l *Loop) startWriters() {
	for range noteWriters {
		l.goes(func(ctx context.Context) {
			write(ctx, l.notes, flowcontrol.NewTokenBucketRateLimiter(notesPerSecond/noteWriters, notesPerSecond))
		})
	}
	l.goes(func(ctx context.Context) {
		write(ctx, l.releaseEvents,
			flowcontrol.NewTokenBucketRateLimiter(releaseEventsPerSecond, releaseEventBurst))
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
				klog.FromContext(ctx).V(2).Info("A note was not written", "error", err)
			}
			cancel()
		}
	}
}

// lead begins to keep windows, and tells the owners of everything that was planned before why it waits.
func (l *Loop) lead() {
	l.leads = true
	for _, q := range [2]*queue{l.pods, l.jobs} {
		q.order.sort()
		for h := range q.order.all() {
			l.explain(h)
		}
	}
}

// explain writes on the object why it waits, once per plan, and an event once per hold. In a rush that is put off.
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
	quietly := !reported.IsZero() || len(l.notes) > quietAbove
	queued := enqueue(l.notes, func(ctx context.Context) error {
		if err := write(ctx); err != nil {
			if !apierrors.IsNotFound(err) { // it has changed: to be written again if it is still held
				l.post(func() {
					if h.refused = min(h.refused+1, maxRefusals); h.refused < maxRefusals {
						h.reported = reported
						l.putOff(h)
					}
				})
			}
			return err
		}
		if quietly {
			return nil
		}
		return l.event(ctx, object, v1.EventTypeNormal, reasonHeld, reason)
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

// flushNotes writes what was put off, oldest first, as far as there is room for it.
func (l *Loop) flushNotes() {
	for range min(cap(l.notes)/2-len(l.notes), len(l.notesInOrder)) {
		h := l.notesInOrder[0]
		if l.notesInOrder = l.notesInOrder[1:]; len(l.notesInOrder) == 0 {
			// A map keeps the memory of all that it ever held.
			l.notesInOrder, l.pendingNotes = nil, map[*hold]struct{}{}
		}
		delete(l.pendingNotes, h)
		l.explain(h) // if it panics, the others are told with the next turn
	}
}

// object refers to a Job or a pod, by what the queue holds.
func (q *queue) object(uid types.UID, namespace, name string) v1.ObjectReference {
	ref := v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
	if q.kind == kindJob {
		ref.APIVersion, ref.Kind = "batch/v1", "Job"
	}
	return ref
}

// writeAnnotations explains a hold on its Job, unless the Job was released meanwhile.
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

// writeCondition explains a hold on its pod, which would look forgotten otherwise. It must not land on a pod that was
// bound meanwhile, whose condition would then be false: hence the resourceVersion.
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

// heldBefore reports whether the pod carries our condition. Pods with scheduling gates are given one of the same
// reason by the API server, and keep it until something else is written.
func heldBefore(pod *v1.Pod) bool {
	c := policy.Scheduled(pod)
	return c.Reason == v1.PodReasonSchedulingGated && c.Message != messageOfGates
}

const messageOfGates = "Scheduling is blocked due to non-empty scheduling gates" // in pods that are created with any

// queueEvent queues an event about an object, if this replica leads.
func (l *Loop) queueEvent(object v1.ObjectReference, kind, reason, text string) {
	if l.leads {
		enqueue(l.notes, func(ctx context.Context) error { return l.event(ctx, object, kind, reason, text) })
	}
}

// released books a release. Only one replica counts it and tells people.
func (l *Loop) released(h *hold, now time.Time, ours bool) {
	if !ours {
		return
	}
	q, object := h.queue, h.object()
	cause := h.cause(now, q.pace.lead())
	heldFor.WithLabelValues(q.kind).Observe(max(0, now.Sub(h.submitted).Seconds()))
	releases.WithLabelValues(q.kind, cause).Inc()
	l.recordRelease(h, now, cause)
	if h.reported.IsZero() { // never told to wait
		if why := h.why(); q == l.jobs && h.left == freed && why != resumed {
			// It was suspended for a moment, and its owner may wonder.
			kind, reason, text := v1.EventTypeNormal, reasonNotHeld, "not held: "+why
			if h.wrong {
				kind, reason, text = v1.EventTypeWarning, reasonNoEffect, why
			}
			enqueue(l.notes, func(ctx context.Context) error { return l.event(ctx, object, kind, reason, text) })
		}
		return
	}
	text := "the allowed delay is used up"
	if cause == reasonReleased {
		text = "its window opens"
		if h.left == freed {
			text = h.why()
		}
	}
	// In a rush the metrics and the decision records alone tell of most.
	enqueue(l.releaseEvents, func(ctx context.Context) error {
		return l.event(ctx, object, v1.EventTypeNormal, cause, text)
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

// noteOf returns as much of a text as the API server takes for an event.
func noteOf(text string) string {
	const most = 1024 // bytes
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
