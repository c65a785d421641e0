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
	// with more on the way, annotations or the condition alone say that something is held, and no event
	reticence    = maxNotes / 4
	mostRefusals = 5 // of notes on one hold; after that each plan is told once, written or not
	reporter     = "kubenergy-scheduler"

	// Events of releases come while the cluster starts what was let go, and each would cost it a tenth of a start.
	maxFarewells       = 1024
	farewellsPerSecond = 10
	farewellBurst      = 50
)

// note is a write that only informs.
type note func(context.Context) error

// tell queues a note; where too many wait it is lost, and reports so.
func (l *Loop) tell(n note) bool {
	select {
	case l.notes <- n:
		return true
	default:
		return false
	}
}

// bidFarewell queues an event of a release; in a rush the metrics and the records of decisions alone tell of most.
func (l *Loop) bidFarewell(n note) {
	select {
	case l.farewells <- n:
	default:
	}
}

func (l *Loop) writeNotes(ctx context.Context) {
	write(ctx, l.notes, flowcontrol.NewTokenBucketRateLimiter(notesPerSecond/noteWriters, notesPerSecond))
}

func (l *Loop) writeFarewells(ctx context.Context) {
	write(ctx, l.farewells, flowcontrol.NewTokenBucketRateLimiter(farewellsPerSecond, farewellBurst))
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

// lead begins to keep windows, and says of everything that was planned before why it waits.
func (l *Loop) lead() {
	l.leads = true
	for _, q := range [2]*queue{l.pods, l.jobs} {
		q.order.settle()
		for h := range q.order.all() {
			l.say(q, h)
		}
	}
}

// say puts on the object why it waits, once per plan, and an event once per hold. Where too much is to be said at
// once, that waits.
func (l *Loop) say(q *queue, h *hold) {
	if !l.leads || h.unheld || h.opened || !h.planned {
		return
	}
	said := h.said
	if !h.stale && sameTime(h.start, said) {
		return
	}
	if len(l.notes) > cap(l.notes)/2 {
		l.putOff(q, h)
		return
	}
	job, stale := q == l.jobs, h.stale
	about, reason := h.about(job), h.why()
	write := l.onPod(h)
	if job {
		write = l.onJob(h)
	}
	quietly := !said.IsZero() || len(l.notes) > reticence
	told := l.tell(func(ctx context.Context) error {
		if err := write(ctx); err != nil {
			if !apierrors.IsNotFound(err) { // it has changed: to be said again if it is still held
				l.post(func() {
					if h.refused++; h.refused < mostRefusals {
						h.said, h.stale = said, stale
						l.putOff(q, h)
					}
				})
			}
			return err
		}
		if quietly {
			return nil
		}
		return l.event(ctx, about, v1.EventTypeNormal, reasonHeld, reason)
	})
	if told {
		h.said, h.stale = h.start, false
		l.recordHold(h, job)
	}
}

// putOff lets something be said later.
func (l *Loop) putOff(q *queue, h *hold) {
	if !h.untold {
		h.untold = true
		l.untold = append(l.untold, unsaid{q, h})
	}
}

// unsaid is a hold of whose plan its owner is yet to be told.
type unsaid struct {
	q *queue
	h *hold
}

// sayRest says what was put off, as far as there is room for it.
func (l *Loop) sayRest() {
	for n := min(len(l.untold), cap(l.notes)/2-len(l.notes)); n > 0; n-- {
		next := l.untold[0]
		l.untold = l.untold[1:]
		next.h.untold = false
		if next.h.place != nowhere {
			l.say(next.q, next.h)
		}
	}
	if len(l.untold) == 0 {
		l.untold = nil
	}
}

func (h *hold) about(job bool) v1.ObjectReference {
	return about(h.uid, h.work.Namespace(), h.work.Name(), job)
}

func about(uid types.UID, namespace, name string, job bool) v1.ObjectReference {
	ref := v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
	if job {
		ref.APIVersion, ref.Kind = "batch/v1", "Job"
	}
	return ref
}

// onJob writes annotations, unless the Job was released meanwhile.
func (l *Loop) onJob(h *hold) func(context.Context) error {
	namespace, name := h.work.Namespace(), h.work.Name()
	patch := h.patch().SayPatch(map[string]string{
		v1alpha1.AnnotationHeldUntil:   h.start.UTC().Format(time.RFC3339),
		v1alpha1.AnnotationHeldReason:  h.why(),
		v1alpha1.AnnotationLatestStart: h.latest.UTC().Format(time.RFC3339),
	})
	return func(ctx context.Context) error {
		_, err := l.client.BatchV1().Jobs(namespace).Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
		return err
	}
}

// onPod writes the condition without which the pod would look as if nobody cared for it. It must not land on a pod that
// was bound meanwhile, whose condition would then be false: hence the resourceVersion.
func (l *Loop) onPod(h *hold) func(context.Context) error {
	namespace, name := h.work.Namespace(), h.work.Name()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": h.uid, "resourceVersion": h.version},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated,
			Message: h.why(), LastTransitionTime: metav1.NewTime(l.clock.Now()),
		}}},
	})
	return func(ctx context.Context) error {
		if err != nil {
			return err
		}
		_, err := l.client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
		return err
	}
}

// heldBefore reports whether the pod carries our condition. Pods with scheduling gates are given one of the same
// reason by the API server, and keep it until something else is written.
func heldBefore(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled {
			return c.Reason == v1.PodReasonSchedulingGated && c.Message != messageOfGates
		}
	}
	return false
}

const messageOfGates = "Scheduling is blocked due to non-empty scheduling gates" // in pods that are created with any

// sayRefused tells the owner of a pod why what it says has no effect.
func (l *Loop) sayRefused(about v1.ObjectReference, no refusal) {
	if l.leads {
		l.tell(func(ctx context.Context) error {
			return l.event(ctx, about, v1.EventTypeWarning, no.reason, no.text)
		})
	}
}

// sayIdle tells the owner of an object about annotations of other systems that do nothing here: once in a namespace,
// since whoever writes them once does so in every manifest.
func (l *Loop) sayIdle(about v1.ObjectReference, sentences []string) {
	for _, sentence := range sentences {
		key := about.Namespace + " " + sentence
		if l.warned[key] || len(l.warned) >= maxWarned || !l.leads {
			continue
		}
		l.warned[key] = true
		l.tell(func(ctx context.Context) error {
			return l.event(ctx, about, v1.EventTypeWarning, reasonNoEffect, sentence)
		})
	}
}

const maxWarned = 10_000

// released books a release. Only one replica counts it and tells people.
func (l *Loop) released(kind string, q *queue, h *hold, now time.Time, ours bool) {
	if !ours {
		return
	}
	cause := h.cause(now, q.pace.lead())
	heldFor.WithLabelValues(kind).Observe(max(0, now.Sub(h.work.Submitted()).Seconds()))
	releases.WithLabelValues(kind, cause).Inc()
	l.recordRelease(h, kind == kindJob, now, cause)
	about := h.about(kind == kindJob)
	if h.said.IsZero() { // never told to wait
		if kind == kindJob && h.unheld && h.why() != resumed {
			why := h.why() // it was suspended for a moment, and its owner may wonder
			l.tell(func(ctx context.Context) error {
				return l.event(ctx, about, v1.EventTypeNormal, reasonNotHeld, "not held: "+why)
			})
		}
		return
	}
	text := "the allowed delay is used up"
	if cause == reasonReleased {
		text = "its window opens"
		if h.unheld {
			text = h.why()
		}
	}
	l.bidFarewell(func(ctx context.Context) error {
		return l.event(ctx, about, v1.EventTypeNormal, cause, text)
	})
}

func (l *Loop) event(ctx context.Context, about v1.ObjectReference, kind, reason, text string) error {
	now := time.Now()
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: about.Namespace, Name: recordutil.GenerateEventName(about.Name, now.UnixNano()+l.events.Add(1)),
		},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: reporter, ReportingInstance: l.identity,
		Action: "Holding", Reason: reason, Regarding: about, Note: noteOf(text), Type: kind,
	}
	_, err := l.client.EventsV1().Events(about.Namespace).Create(ctx, event, metav1.CreateOptions{})
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
