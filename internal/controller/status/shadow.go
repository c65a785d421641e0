package status

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/instrument"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// ShadowOptions are what a Shadow needs.
type ShadowOptions struct {
	View       func() *kube.View
	Leads      func() bool
	Events     events.EventRecorder
	Signal     func() string // kind of the carbon intensities that decisions weigh
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// A Shadow decides on new work as if its namespace were in mode enforce, and only counts the outcome. What was there
// before this process, or before it led, was counted by another one or not at all. On new work, in any mode, it also
// tells owners, by an event, what they wrote in vain.
type Shadow struct {
	o                ShadowOptions
	decisions, saved *prometheus.CounterVec // by namespace: their series go with it
	missed           prometheus.Counter
	began            time.Time
	queue            chan newWork
	seen             *cache.LRUExpireCache // UIDs of what was looked at
	reported         *cache.LRUExpireCache // findings, by namespace

	mu        sync.Mutex
	counts    map[string]*v1alpha1.ShadowStatus // by namespace
	elsewhere *v1alpha1.ShadowStatus            // of earlier leaders, in namespaces of which they left no count
}

// newWork is a Job or a bare pod that was just created.
type newWork struct {
	client.Object
	arrived time.Time
}

const (
	shadowQueue = 8192
	// settleFor lets what was written just before the work, as the label of its namespace, arrive here.
	settleFor = time.Second
	// An object comes to us once, but for watches that break. Older ones are kept out by their age.
	shadowMemory = 10 * time.Minute
	maxSeen      = 50_000
)

// NewShadow returns a Shadow that has counted nothing.
func NewShadow(o ShadowOptions) *Shadow {
	with := instrument.With(o.Registerer)
	return &Shadow{
		o: o, began: time.Now(), queue: make(chan newWork, shadowQueue),
		seen: cache.NewLRUExpireCache(maxSeen), reported: cache.NewLRUExpireCache(maxSeen),
		counts: map[string]*v1alpha1.ShadowStatus{},
		decisions: with.Counters("kubenergy_shadow_decisions_total",
			"Decisions that were not carried out, since the mode is shadow or advise.", "namespace", "rule", "outcome"),
		saved: with.Counters("kubenergy_shadow_saved_carbon_grams_total",
			"Emissions that holding would have avoided, estimated.", "namespace", "signal"),
		missed: with.Counter("kubenergy_shadow_lost_total",
			"New work that was not looked at, because too much came at once."),
	}
}

// Created is told of every Job and pod that an informer adds. Of pods, only bare ones are ever held; others are looked
// at for what they say in vain.
func (s *Shadow) Created(o client.Object) {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		// The marks of a Job's pods were read with the Job.
		if _, pod := o.(*v1.Pod); pod && (owner.Kind == "Job" || !policy.Mentions(o)) {
			return
		}
	}
	now, created := time.Now(), o.GetCreationTimestamp().Time
	// Timestamps have whole seconds.
	if !s.o.Leads() || created.Before(s.began.Truncate(time.Second)) || now.Sub(created) > shadowMemory {
		return
	}
	select {
	case s.queue <- newWork{o, now}:
	default:
		s.missed.Inc()
	}
}

// Run decides until ctx ends.
func (s *Shadow) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case w := <-s.queue:
			if !s.wait(ctx, w) {
				return nil
			}
			panics.Survive(s.o.Log, "shadow", "deciding for the record", func() {
				daemon.Round(ctx, func() { s.decide(w) })
			})
		}
	}
}

// wait returns when the view knows what was written before the work. It reports whether ctx goes on.
func (s *Shadow) wait(ctx context.Context, w newWork) bool {
	pause := settleFor - time.Since(w.arrived)
	for pause > 0 || !s.o.View().Settled() {
		if !kube.Pause(ctx, max(pause, 100*time.Millisecond)) {
			return false
		}
		pause = 0
	}
	return true
}

// decide looks at one piece of work, once.
func (s *Shadow) decide(w newWork) {
	log := s.o.Log.With("namespace", w.GetNamespace(), "name", w.GetName())
	work, err := policy.Read(w.Object)
	if policy.Mentions(w.Object) {
		s.notify(w.Object, &work, err)
	}
	// What makes no sense counts as not marked.
	if _, never := policy.NeverHeld(w.Object); never || err != nil {
		return
	}
	view, now := s.o.View(), time.Now()
	job, settings := view.Settle(&work)
	if !settings.Ours || settings.Mode != v1alpha1.ModeShadow && settings.Mode != v1alpha1.ModeAdvise {
		return
	}
	if _, before := s.seen.Get(w.GetUID()); before {
		return
	}
	s.seen.Add(w.GetUID(), nil, shadowMemory+settleFor)
	decision := view.Decide(now, job, settings)
	held, saved := decision.Held(now), max(0, float64(decision.Reason.Carbon))
	outcome := outcomeStarted
	if held {
		outcome = outcomeHeld
		s.saved.WithLabelValues(work.Namespace, s.o.Signal()).Add(saved)
	}
	s.decisions.WithLabelValues(work.Namespace, settings.When, outcome).Inc()
	s.count(work.Namespace, held, saved, now)
	kind := "Job"
	if _, pod := w.Object.(*v1.Pod); pod {
		kind = "Pod"
	}
	log.Info("decided for the record", "mode", settings.Mode, "kind", kind, "wouldHold", held, "start",
		decision.Window.Start, "reason", decision.Reason.String())
	if held && settings.Mode == v1alpha1.ModeAdvise {
		s.o.Events.Eventf(w.Object, nil, v1.EventTypeNormal, "WouldHold", "Holding", "would be %s",
			Bounded(decision.Reason.String()))
	}
}

// notify tells the owner of new work what is written there in vain: once an hour in a namespace, since owners write the
// same in every manifest. Annotations that make no sense are told by the scheduler, of what it holds or would hold.
func (s *Shadow) notify(o client.Object, work *policy.Work, err error) {
	var said []string
	annotations, labels := []map[string]string{o.GetAnnotations()}, o.GetLabels()
	job, isJob := o.(*batchv1.Job)
	if isJob {
		annotations = append(annotations, job.Spec.Template.Annotations)
	}
	for _, f := range policy.FindKeys(labels, annotations...) {
		said = append(said, f.String())
	}
	switch {
	case err == nil:
		for _, f := range append(policy.FindOwner(o, work), s.o.View().Find(time.Now(), work)...) {
			said = append(said, f.String())
		}
	case isJob && labels[v1alpha1.LabelHeld] == "", !isJob && metav1.GetControllerOfNoCopy(o) != nil:
		said = append(said, "all energy annotations here are ignored: "+err.Error())
	}
	for _, text := range said {
		key := o.GetNamespace() + " " + text
		if _, before := s.reported.Get(key); before {
			continue
		}
		s.reported.Add(key, nil, time.Hour)
		s.o.Events.Eventf(o, nil, v1.EventTypeWarning, "NoEffect", "Reading", "%s", Bounded(text))
	}
}

// The outcomes of a decision.
const (
	outcomeHeld    = "held"
	outcomeStarted = "started"
)

// inherit goes on from what earlier leaders have counted, as they wrote it to policies, before anything is written
// there. That of the cluster's policy is the sum of all namespaces, most of which have no policy of their own.
func (s *Shadow) inherit(all []v1alpha1.EnergyPolicy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest *v1alpha1.ShadowStatus
	for i := range all {
		if p := &all[i]; client.ObjectKeyFromObject(p) == clusterPolicy && p.Status.Shadow != nil {
			rest = p.Status.Shadow.DeepCopy()
		}
	}
	for i := range all {
		p := &all[i]
		if p.Name != v1alpha1.PolicyName || p.Namespace == v1alpha1.SystemNamespace || p.Status.Shadow == nil {
			continue
		}
		c := p.Status.Shadow.DeepCopy()
		if rest != nil {
			rest.Decided = max(0, rest.Decided-c.Decided)
			rest.Held = max(0, rest.Held-c.Held)
			rest.SavedGrams = max(0, rest.SavedGrams-c.SavedGrams)
		}
		if now := s.counts[p.Namespace]; now != nil {
			add(c, now)
		}
		s.counts[p.Namespace] = c
	}
	s.elsewhere = rest
}

// add adds a count to another one.
func add(to, c *v1alpha1.ShadowStatus) {
	to.Decided += c.Decided
	to.Held += c.Held
	to.SavedGrams += c.SavedGrams
	if to.Last == nil || to.Last.Before(c.Last) {
		to.Last = c.Last
	}
}

func (s *Shadow) count(namespace string, held bool, saved float64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts[namespace]
	if c == nil {
		c = &v1alpha1.ShadowStatus{}
		s.counts[namespace] = c
	}
	one := v1alpha1.ShadowStatus{Decided: 1, Last: &metav1.Time{Time: now.Truncate(time.Second)}}
	if held {
		one.Held, one.SavedGrams = 1, saved
	}
	add(c, &one)
}

// status returns what was counted in a namespace, or in all; nil if that is nothing.
func (s *Shadow) status(namespace string) *v1alpha1.ShadowStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	if namespace != "" {
		return s.counts[namespace].DeepCopy()
	}
	all := s.elsewhere.DeepCopy()
	for _, c := range s.counts {
		all = cmp.Or(all, &v1alpha1.ShadowStatus{})
		add(all, c)
	}
	return all
}

// Forget drops what was counted in a namespace that is gone.
func (s *Shadow) Forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counts, namespace)
	s.decisions.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	s.saved.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
}
