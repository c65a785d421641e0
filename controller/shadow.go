package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
)

// shadow decides on new work as if its namespace were in mode enforce, and only counts the outcome. What was there before
// this process, or before it led, was counted by another one or not at all.
type shadow struct {
	view    func() *kube.View
	leads   func() bool
	events  events.EventRecorder
	metrics *instruments
	now     func() time.Time
	log     *slog.Logger
	began   time.Time
	queue   chan newWork

	mu     sync.Mutex
	seen   map[types.UID]time.Time // when it was looked at
	swept  time.Time
	counts map[string]*v1alpha1.ShadowStatus // by namespace
}

// newWork is a Job or a bare pod that was just created.
type newWork struct {
	object  runtime.Object
	meta    metav1.Object
	kind    string
	arrived time.Time
	read    func() (kube.Work, error)
	unheld  func() (why string, never bool)
}

const (
	shadowQueue = 8192
	// settleFor lets what was written just before the work, as the label of its namespace, arrive here.
	settleFor = time.Second
	// An object comes to us once, but for watches that break. Older ones are kept out by their age.
	shadowMemory = 10 * time.Minute
	maxSeen      = 50_000
)

func newShadow(view func() *kube.View, leads func() bool, recorder events.EventRecorder, m *instruments, log *slog.Logger) *shadow {
	return &shadow{
		view: view, leads: leads, events: recorder, metrics: m, now: time.Now, log: log, began: time.Now(),
		queue: make(chan newWork, shadowQueue), seen: map[types.UID]time.Time{}, counts: map[string]*v1alpha1.ShadowStatus{},
	}
}

// sawJob is told of every Job that an informer adds.
func (s *shadow) sawJob(j *batchv1.Job) {
	s.saw(newWork{
		object: j, meta: j, kind: "Job",
		read:   func() (kube.Work, error) { return kube.ReadJob(j) },
		unheld: func() (string, bool) { return kube.NeverHeldJob(j) },
	})
}

// sawPod is told of every pod that an informer adds. Only bare ones are ever held.
func (s *shadow) sawPod(p *v1.Pod) {
	if metav1.GetControllerOfNoCopy(p) != nil {
		return
	}
	s.saw(newWork{
		object: p, meta: p, kind: "Pod",
		read:   func() (kube.Work, error) { return kube.ReadPod(p) },
		unheld: func() (string, bool) { return kube.NeverHeldPod(p) },
	})
}

func (s *shadow) saw(w newWork) {
	w.arrived = s.now()
	created := w.meta.GetCreationTimestamp().Time
	// Timestamps have whole seconds.
	if !s.leads() || created.Before(s.began.Truncate(time.Second)) || w.arrived.Sub(created) > shadowMemory {
		return
	}
	select {
	case s.queue <- w:
	default:
		s.metrics.shadowLost.Inc()
	}
}

// run decides until ctx ends.
func (s *shadow) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case w := <-s.queue:
			if !s.wait(ctx, w) {
				return nil
			}
			s.decide(w)
		}
	}
}

// wait returns when the view knows what was written before the work. It reports whether ctx goes on.
func (s *shadow) wait(ctx context.Context, w newWork) bool {
	pause := settleFor - s.now().Sub(w.arrived)
	for pause > 0 || !s.view().Settled() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(max(pause, 100*time.Millisecond)):
		}
		pause = 0
	}
	return true
}

// decide looks at one piece of work, once.
func (s *shadow) decide(w newWork) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("deciding for the record panicked", "kind", w.kind, "namespace", w.meta.GetNamespace(), "name", w.meta.GetName(), "panic", r)
		}
	}()
	if _, never := w.unheld(); never {
		return
	}
	work, err := w.read()
	if err != nil {
		return // it would be treated as if nobody had marked it
	}
	view, now := s.view(), s.now()
	job, settings := view.Settle(&work)
	if !settings.Ours || settings.Mode != v1alpha1.ModeShadow && settings.Mode != v1alpha1.ModeAdvise || !s.first(w.meta.GetUID(), now) {
		return
	}
	decision := view.Decide(now, job, settings)
	held := decision.Held(now)
	outcome := outcomeStarted
	if held {
		outcome = outcomeHeld
		s.metrics.shadowSaved.WithLabelValues(work.Namespace).Add(max(0, float64(decision.Reason.Carbon)))
	}
	s.metrics.shadowDecisions.WithLabelValues(work.Namespace, settings.When, outcome).Inc()
	s.count(work.Namespace, held, float64(decision.Reason.Carbon), now)
	s.log.Info("decided for the record", "mode", settings.Mode, "kind", w.kind, "namespace", work.Namespace, "name", w.meta.GetName(),
		"wouldHold", held, "start", decision.Window.Start, "reason", decision.Reason.String())
	if held && settings.Mode == v1alpha1.ModeAdvise {
		s.events.Eventf(w.object, nil, v1.EventTypeNormal, "WouldHold", "Holding", "would be %s", bounded(decision.Reason.String()))
	}
}

// The outcomes of a decision.
const (
	outcomeHeld    = "held"
	outcomeStarted = "started"
)

// first reports whether the object has not been looked at before.
func (s *shadow) first(uid types.UID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.swept) > shadowMemory/10 || len(s.seen) >= maxSeen {
		s.swept = now
		for uid, at := range s.seen {
			if now.Sub(at) > shadowMemory+settleFor {
				delete(s.seen, uid)
			}
		}
	}
	if _, known := s.seen[uid]; known || len(s.seen) >= maxSeen {
		return false
	}
	s.seen[uid] = now
	return true
}

func (s *shadow) count(namespace string, held bool, saved float64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts[namespace]
	if c == nil {
		c = &v1alpha1.ShadowStatus{}
		s.counts[namespace] = c
	}
	c.Decided++
	if held {
		c.Held++
		c.SavedGrams += max(0, saved)
	}
	last := metav1.NewTime(now.Truncate(time.Second))
	c.Last = &last
}

// status returns what was counted in a namespace, or in all; nil if that is nothing.
func (s *shadow) status(namespace string) *v1alpha1.ShadowStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if namespace != "" {
		return s.counts[namespace].DeepCopy()
	}
	var all *v1alpha1.ShadowStatus
	for _, c := range s.counts {
		if all == nil {
			all = &v1alpha1.ShadowStatus{}
		}
		all.Decided += c.Decided
		all.Held += c.Held
		all.SavedGrams += c.SavedGrams
		if all.Last.Before(c.Last) {
			all.Last = c.Last
		}
	}
	return all
}

// forget drops what was counted in a namespace that is gone.
func (s *shadow) forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counts, namespace)
}
