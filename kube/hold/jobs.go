package hold

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

// seenJob is what the loop needs of a Job with our label: a tenth of the object.
type seenJob struct {
	uid             types.UID
	namespace, name string
	patch           kube.HeldJob
	work            kube.Work
	letGo           string // why it is not to be held; "": it may be
	nonsense        bool   // an annotation makes no sense
	idleMarks       []string
	cronJob         string // its owner
	scheduled       time.Time
	heldUntil       time.Time // what an earlier process planned
	latest          time.Time // and what it took for the deadline
	suspended       bool
	queued          bool // by Kueue
}

func readJob(j *batchv1.Job) *seenJob {
	s := &seenJob{
		uid: j.UID, namespace: j.Namespace, name: j.Name, patch: kube.SeenJob(j),
		scheduled: j.CreationTimestamp.Time,
		suspended: j.Spec.Suspend != nil && *j.Spec.Suspend,
	}
	work, err := kube.ReadJob(j)
	why, never := kube.NeverHeldJob(j)
	switch {
	case err != nil:
		s.letGo, s.nonsense = err.Error(), true
	case never:
		s.letGo = why
	case !s.suspended:
		s.letGo = resumed
	}
	s.work = work
	s.idleMarks = kube.Unsupported(j.Annotations, j.Spec.Template.Annotations)
	_, s.queued = j.Labels[kube.LabelKueueQueue] // Kueue resumes it itself
	if owner := metav1.GetControllerOf(j); owner != nil && owner.Kind == "CronJob" {
		s.cronJob = owner.Name
		if t, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation]); err == nil {
			s.scheduled = t
		}
	}
	if t, err := time.Parse(time.RFC3339, j.Annotations[kube.AnnotationHeldUntil]); err == nil {
		s.heldUntil = t
	}
	if t, err := time.Parse(time.RFC3339, j.Annotations[kube.AnnotationLatestStart]); err == nil {
		s.latest = t
	}
	return s
}

// resumed is why a Job is let go that somebody else lets run.
const resumed = "it was resumed"

// watchJobs follows the Jobs with our label. It keeps no copies of them, so that a hundred thousand held Jobs fit in
// the memory of a scheduler. It is no part of kube-scheduler's informers, all of which must have synced before the
// first pod is scheduled: without permission on Jobs it goes on trying, and pods are served meanwhile.
func (l *Loop) watchJobs(ctx context.Context) {
	selector := kube.LabelHeld + "=true"
	jobs := l.client.BatchV1().Jobs(metav1.NamespaceAll)
	logger := klog.FromContext(ctx)
	var last string
	note := func(err error) {
		// Every attempt would log the same otherwise.
		if err != nil && err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			logger.Error(err, "Jobs cannot be watched: held ones stay suspended until they can")
		}
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			list, err := jobs.List(ctx, o)
			note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			w, err := jobs.Watch(ctx, o)
			note(err)
			return w, err
		},
	}, l.client)
	reflector := cache.NewReflectorWithOptions(lw, &batchv1.Job{}, jobStore{l}, cache.ReflectorOptions{Name: "held Jobs"})
	reflector.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

// jobStore hands what a reflector sees to the loop.
type jobStore struct{ l *Loop }

// Add implements [cache.ReflectorStore].
func (s jobStore) Add(obj any) error {
	j, ok := obj.(*batchv1.Job)
	if !ok {
		return nil
	}
	if j.Labels[kube.LabelHeld] != "true" {
		return s.Delete(obj)
	}
	seen := readJob(j)
	s.l.post(func() { s.l.sawJob(seen) })
	return nil
}

// Update implements [cache.ReflectorStore].
func (s jobStore) Update(obj any) error { return s.Add(obj) }

// Delete implements [cache.ReflectorStore]. It is also called when a Job has lost our label.
func (s jobStore) Delete(obj any) error {
	if j, ok := obj.(*batchv1.Job); ok {
		uid := j.UID
		s.l.post(func() { s.l.lostJob(uid) })
	}
	return nil
}

// Replace implements [cache.ReflectorStore].
func (s jobStore) Replace(list []any, _ string) error {
	seen := make(map[types.UID]*seenJob, len(list))
	for _, obj := range list {
		if j, ok := obj.(*batchv1.Job); ok && j.Labels[kube.LabelHeld] == "true" {
			seen[j.UID] = readJob(j)
		}
	}
	s.l.post(func() {
		for uid := range s.l.jobs.byUID {
			if _, ok := seen[uid]; !ok {
				s.l.lostJob(uid)
			}
		}
		for _, j := range seen {
			s.l.sawJob(j)
		}
	})
	return nil
}

// Resync implements [cache.ReflectorStore].
func (jobStore) Resync() error { return nil }

func (l *Loop) lostJob(uid types.UID) {
	if h := l.jobs.byUID[uid]; h != nil {
		l.jobs.remove(h)
	}
}

// sawJob takes in a held Job or what has changed on it.
func (l *Loop) sawJob(s *seenJob) {
	h := l.jobs.byUID[s.uid]
	first := h == nil
	view := l.known()
	if first {
		h = &hold{uid: s.uid, namespace: s.namespace, name: s.name, work: &s.work, said: s.heldUntil}
		h.latest = s.deadline(view)
		h.start = h.latest
		if !s.heldUntil.IsZero() {
			h.start, h.planned = earlier(s.heldUntil, h.latest), true
		}
		l.jobs.add(h)
		l.ensurePods()
		l.sayIdle(h.about(true), s.idleMarks)
	}
	h.work, h.patch, h.handOver, h.cron = &s.work, s.patch, s.queued, nil
	if s.cronJob != "" {
		h.cron = s
	}
	if s.letGo != "" {
		h.unheld, h.reason = true, s.letGo
		h.said = time.Time{} // it was never held, or somebody else released it: nobody is to be told
		h.job, h.settings = view.Settle(h.work)
		h.asked = asks(&h.job, &h.settings)
		if first && s.nonsense {
			l.sayRefused(h.about(true), s.letGo)
		}
		return
	}
	if !view.Settled() {
		return // planAll settles it as soon as the policies are known
	}
	l.settle(l.jobs, h, view)
}

// deadline returns the latest start of a Job that is seen for the first time. Until policies are known it is what an
// earlier process wrote on it, since what is not known must neither hold a Job for longer nor let go of it at once.
func (s *seenJob) deadline(view *kube.View) time.Time {
	job, settings := view.Settle(&s.work)
	latest := job.LatestStart()
	if view.Settled() {
		return latest
	}
	if settings.AllowedDelay <= 0 {
		latest = job.Submitted.Add(unknownDelay)
	}
	if !s.latest.IsZero() {
		latest = earlier(latest, s.latest) // that knew the limits, and the schedule of its CronJob
	}
	return latest
}

// unknownDelay holds Jobs of which nothing is known until the policies are; they are waited for no longer than
// kube.Objects has patience.
const unknownDelay = 24 * time.Hour

// clampToTick makes sure that a CronJob's run ends before the next one is due. A schedule that cannot be read is no
// reason to lose a run: it is let go.
func (l *Loop) clampToTick(ctx context.Context, s *seenJob, job sched.Job, wishes asked) {
	// A thousand CronJobs tick at the full hour, and releases use the same client.
	l.lookups <- struct{}{}
	defer func() { <-l.lookups }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	latest, err := cronLatest(ctx, l.client, s, job.Duration)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Not held", "job", klog.KRef(s.namespace, s.name))
	}
	l.post(func() {
		h := l.jobs.byUID[s.uid]
		if h == nil || h.asked != wishes {
			return
		}
		h.waiting = false
		switch {
		case err != nil:
			h.unheld, h.reason = true, "the schedule of its CronJob cannot be read"
		case latest.IsZero():
		case !latest.After(l.clock.now()):
			h.unheld, h.reason = true, "it is to end before the next run of its CronJob"
		default:
			l.setLatest(l.jobs, h, earlier(latest, job.LatestStart()))
		}
	})
}

func (l *Loop) releaseDueJobs(now time.Time) {
	for _, h := range l.jobs.due(now, l.leads) {
		l.releaseJob(h, now)
	}
}

// releaseJob lets the API server clear spec.suspend. The label is the guard: whoever comes second, or finds that its
// user took the Job over by removing the label, changes nothing.
func (l *Loop) releaseJob(h *hold, now time.Time) {
	h.releasing = true
	patch, first := h.patch.ReleasePatch(now), h.failures == 0
	if h.handOver {
		patch = h.patch.HandOverPatch()
	}
	l.goes(func(ctx context.Context) {
		l.slots <- struct{}{}
		defer func() { <-l.slots }()
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		ours, err := l.patchReleased(call, h.namespace, h.name, h.uid, patch)
		if err != nil && first && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Not released yet: trying again")
		}
		l.post(func() { l.jobReleased(h, ours, err) })
	})
}

// A release that went wrong is tried again after a quarter of a second, then half, … up to four.
const (
	retryRelease = time.Second / 4
	maxDoublings = 4
	retryOverdue = 2 * retryRelease // past a deadline, so that a server which comes back is asked within a second
)

func (l *Loop) jobReleased(h *hold, ours bool, err error) {
	now := l.clock.now()
	h.releasing = false
	if err != nil {
		pause := retryRelease << h.failures
		if now.After(h.latest) {
			pause = min(pause, retryOverdue)
		}
		h.retry = now.Add(pause)
		h.failures = min(h.failures+1, maxDoublings)
		return
	}
	if l.jobs.byUID[h.uid] == h {
		l.jobs.remove(h)
	}
	if !h.handOver {
		l.released(kindJob, l.jobs, h, now, ours)
	}
}

// patchReleased reports whether it was this call that released the Job.
func (l *Loop) patchReleased(ctx context.Context, namespace, name string, uid types.UID, patch []byte) (ours bool, err error) {
	jobs := l.client.BatchV1().Jobs(namespace)
	_, err = jobs.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err == nil {
		return true, nil
	}
	if !apierrors.IsNotFound(err) {
		// A failed test and a refusal by a policy look the same.
		current, errGet := jobs.Get(ctx, name, metav1.GetOptions{})
		if errGet == nil && current.UID == uid && current.Labels[kube.LabelHeld] == "true" || errGet != nil && !apierrors.IsNotFound(errGet) {
			return false, fmt.Errorf("releasing Job %s/%s: %w", namespace, name, err)
		}
	}
	return false, nil
}
