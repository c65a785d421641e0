package status

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
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

// ShadowOptions are the dependencies of a [Shadow].
type ShadowOptions struct {
	View       func() *kube.View
	CronJob    func(namespace, name string) *batchv1.CronJob // nil if the CronJob is unknown
	Leads      func() bool
	Events     events.EventRecorder
	Signal     func() string // kind of carbon intensity that is used in decisions
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Shadow makes decisions for new work as if its namespace were in mode enforce, and counts the results. Work that
// was created before this process became the leader is ignored. In all modes, it also emits events about
// annotations of new work that have no effect.
type Shadow struct {
	o                ShadowOptions
	decisions, saved *prometheus.CounterVec // by namespace; removed with the namespace
	missed           prometheus.Counter
	began            time.Time
	queue            chan newWork
	seen             *cache.LRUExpireCache // UIDs of processed objects
	reported         *cache.LRUExpireCache // reported findings by namespace

	mu        sync.Mutex
	counts    map[string]*v1alpha1.ShadowStatus // by namespace
	elsewhere *v1alpha1.ShadowStatus            // counts of earlier leaders for namespaces without a policy
}

// newWork is a Job or a bare pod that has just been created.
type newWork struct {
	client.Object
	arrived time.Time
}

const (
	shadowQueue = 8192
	// settleFor is the delay before a decision, so that objects written just before the work, such as the label of
	// its namespace, are in the cache.
	settleFor = time.Second
	// shadowMemory is the maximum age of new work. An object may be added again when a watch is restarted. Objects
	// up to this age are deduplicated by UID, and older ones are ignored.
	shadowMemory = 10 * time.Minute
	maxSeen      = 50_000
)

// NewShadow returns a Shadow with all counts at zero.
func NewShadow(o ShadowOptions) *Shadow {
	with := instrument.With(o.Registerer)
	return &Shadow{
		o: o, began: time.Now(), queue: make(chan newWork, shadowQueue),
		seen: cache.NewLRUExpireCache(maxSeen), reported: cache.NewLRUExpireCache(maxSeen),
		counts: map[string]*v1alpha1.ShadowStatus{},
		decisions: with.Counters("kubenergy_shadow_decisions_total",
			"Number of decisions not applied because the mode is shadow or advise.", "namespace", "rule", "outcome"),
		saved: with.Counters("kubenergy_shadow_saved_carbon_grams_total",
			"Estimated emissions in gCO2e that holding work would have avoided.", "namespace", "signal"),
		missed: with.Counter("kubenergy_shadow_lost_total",
			"Number of new Jobs and pods that were not processed because the queue was full."),
	}
}

// Created must be called for every Job and pod that an informer adds. Only bare pods can be held. Other pods are
// only checked for annotations without effect.
func (s *Shadow) Created(o client.Object) {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		// The annotations of a Job's pods are checked with the Job.
		if _, pod := o.(*v1.Pod); pod && (owner.Kind == "Job" || !policy.Mentions(o)) {
			return
		}
	}
	now, created := time.Now(), o.GetCreationTimestamp().Time
	// Creation timestamps have a resolution of one second.
	if !s.o.Leads() || created.Before(s.began.Truncate(time.Second)) || now.Sub(created) > shadowMemory {
		return
	}
	select {
	case s.queue <- newWork{o, now}:
	default:
		s.missed.Inc()
	}
}

// Run processes new work until ctx is done.
func (s *Shadow) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case w := <-s.queue:
			if !s.wait(ctx, w) {
				return nil
			}
			panics.Survive(s.o.Log, "shadow", "making a shadow decision", func() {
				daemon.Round(ctx, func() { s.decide(w) })
			})
		}
	}
}

// wait waits until the view contains objects written before the work. It returns false if ctx is done.
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

// decide processes a Job or pod. Each object is counted once.
func (s *Shadow) decide(w newWork) {
	log := s.o.Log.With("namespace", w.GetNamespace(), "name", w.GetName())
	work, err := policy.Read(w.Object)
	if policy.Mentions(w.Object) {
		s.notify(w.Object, &work, err)
	}
	s.notifyCronJob(w.Object)
	// Work with invalid annotations is treated as if it had none.
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
	log.Info("Made a shadow decision", "mode", settings.Mode, "kind", kind, "wouldHold", held, "start",
		decision.Window.Start, "reason", decision.Reason.String())
	// In shadow mode, only one event per namespace and hour is emitted.
	if held && (settings.Mode == v1alpha1.ModeAdvise || s.first(work.Namespace+" WouldHold")) {
		s.o.Events.Eventf(w.Object, nil, v1.EventTypeNormal, "WouldHold", "Holding",
			"would be %s; to hold such work: %s",
			Bounded(decision.Reason.String()), policy.EnforceCommand(work.Namespace, work.Scheduler))
	}
}

// eventDelayReduced is the reason of events about work that is not held for the whole allowed delay.
const eventDelayReduced = "DelayReduced"

// notifyCronJob emits events about the CronJob of a new Job: if several of its runs would wait at once, and if keys
// only have an effect on its template.
func (s *Shadow) notifyCronJob(o client.Object) {
	job, isJob := o.(*batchv1.Job)
	run := kube.RunOf(o)
	if !isJob || run == nil {
		return
	}
	if c := s.o.CronJob(job.Namespace, run.CronJob); c != nil {
		s.report(c, c.Namespace+" "+c.Name, append(policy.FindCronJob(c), kube.FindRuns(s.o.View(), c, job)...))
	}
}

// report emits an event about an object for each finding, at most once per hour and scope.
func (s *Shadow) report(o client.Object, scope string, found []policy.Finding) {
	for _, f := range found {
		reason := "NoEffect"
		if f.Reduced {
			reason = eventDelayReduced
		}
		if text := f.String(); s.first(scope + " " + text) {
			s.o.Events.Eventf(o, nil, v1.EventTypeWarning, reason, "Reading", "%s", Bounded(text))
		}
	}
}

// first reports whether a key has not been used within the last hour.
func (s *Shadow) first(key string) bool {
	if _, before := s.reported.Get(key); before {
		return false
	}
	s.reported.Add(key, nil, time.Hour)
	return true
}

// notify emits events about annotations and labels of new work that have no effect. Each finding is reported once
// per hour and namespace, because owners use the same annotations in many manifests. Invalid annotations of work
// that is or would be held are reported by the scheduler.
func (s *Shadow) notify(o client.Object, work *policy.Work, err error) {
	annotations, labels := []map[string]string{o.GetAnnotations()}, o.GetLabels()
	job, isJob := o.(*batchv1.Job)
	if isJob {
		annotations = append(annotations, job.Spec.Template.Annotations)
	}
	found := policy.FindKeys(labels, annotations...)
	switch {
	case err == nil:
		found = slices.Concat(found, policy.FindOwner(o, work), s.o.View().Find(time.Now(), work))
	case isJob && labels[v1alpha1.LabelHeld] == "", !isJob && metav1.GetControllerOfNoCopy(o) != nil:
		found = append(found, policy.Finding{Said: "all energy annotations here are ignored: " + err.Error()})
	}
	s.report(o, o.GetNamespace(), found)
}

// Outcomes of a decision.
const (
	outcomeHeld    = "held"
	outcomeStarted = "started"
)

// inherit initializes the counts with those that earlier leaders wrote to the status of policies. It must be called
// before the first write. The count of the cluster's policy is the sum of all namespaces, most of them without a
// policy of their own.
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

// add adds c to the count in to.
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

// status returns the counts of a namespace, or of all namespaces if namespace is empty. It returns nil if there are
// none.
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

// Forget removes the counts of a deleted namespace.
func (s *Shadow) Forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counts, namespace)
	s.decisions.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
	s.saved.DeletePartialMatch(prometheus.Labels{"namespace": namespace})
}
