package hold

import (
	"context"
	"runtime/debug"
	"time"
	"unique"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// readJob converts a Job with the held label into a hold, which needs only a small part of the object. If the Job
// must not be held, the returned hold is freed with a reason. Its deadline is the one that an earlier process wrote
// to the Job, if any. The priority is usually 0, because the API server resolves priority classes only in pods.
func readJob(j *batchv1.Job) *hold {
	work, err := policy.ReadJob(j)
	h := &hold{
		HeldJob: kube.SeenJob(j), rank: rankOf(work.Submitted, ptr.Deref(j.Spec.Template.Spec.Priority, 0)),
		state: waiting, reported: timeIn(j, v1alpha1.AnnotationHeldUntil),
		latest: timeIn(j, v1alpha1.AnnotationLatestStart),
	}
	h.remember(work)
	why, never := policy.NeverHeldJob(j)
	switch {
	case err != nil:
		never, why, h.wrong = true, "all energy annotations are ignored: "+err.Error(), true
	case !never && (j.Spec.Suspend == nil || !*j.Spec.Suspend):
		never, why = true, resumed
	}
	if never {
		h.state, h.reason = freed, unique.Make(why)
	}
	h.cron = kube.RunOf(j)
	return h
}

// readHeld returns the hold for an object from a list or a watch event. It returns nil if the object is not a Job
// with the held label.
func readHeld(obj any) *hold {
	switch o := obj.(type) {
	case *hold: // converted by Transformer while the list was streamed
		return o
	case *batchv1.Job:
		if o.Labels[v1alpha1.LabelHeld] == "true" {
			return readSafely(o, readJob)
		}
	}
	return nil
}

// readSafely calls read and recovers from its panics. A Job that cannot be read is released. The log message is only
// built after a panic, because readSafely is called for each listed Job.
func readSafely(j *batchv1.Job, read func(*batchv1.Job) *hold) (h *hold) {
	defer func() {
		if r := recover(); r != nil {
			if times := panics.Note("objects"); panics.Worth(times) {
				klog.Background().Error(nil, "Reading a Job panicked", "job", klog.KObj(j), "times", times, "panic", r,
					"stack", string(debug.Stack()))
			}
			h = &hold{HeldJob: kube.SeenJob(j), state: freed, reason: unique.Make(unreadable)}
			h.remember(policy.Work{Namespace: j.Namespace, Name: j.Name, Submitted: j.CreationTimestamp.Time})
		}
	}()
	return read(j)
}

// unreadable is the reason for releasing an object after its processing panicked.
const unreadable = "processing the object panicked"

// timeIn parses the RFC 3339 time in an annotation of the Job. It returns the zero time if there is none or if it
// is invalid.
func timeIn(j *batchv1.Job, annotation string) time.Time {
	t, _ := time.Parse(time.RFC3339, j.Annotations[annotation])
	return t
}

// resumed is the reason for releasing a Job that its user or another controller has resumed.
const resumed = "resumed by its user or another controller"

// watchJobs watches the Jobs with the held label. It does not store copies of them, so that the memory of a
// scheduler suffices for a hundred thousand held Jobs. It is separate from the informers of kube-scheduler, all of
// which must have synced before the first pod is scheduled. If the scheduler lacks the permission to watch Jobs,
// watchJobs keeps retrying while pods are scheduled as usual.
func (l *Loop) watchJobs(ctx context.Context) {
	ours := func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.LabelHeld + "=true" }
	logger := klog.FromContext(ctx)
	var last string
	note := func(err error, _ bool) {
		// Log only errors that differ from the last one, because every retry would log the same error.
		if err != nil && err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			logger.Error(err, "Failed to watch Jobs, so held Jobs remain suspended")
		}
	}
	lw := kube.Watching(l.c.Client, l.c.Client.BatchV1().Jobs(metav1.NamespaceAll), ours, note)
	reflector := cache.NewReflectorWithOptions(lw, &batchv1.Job{}, jobStore{l},
		cache.ReflectorOptions{Name: "held Jobs"})
	reflector.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

// jobStore passes the objects of a reflector to the loop.
type jobStore struct{ l *Loop }

// Add implements [cache.ReflectorStore].
func (s jobStore) Add(obj any) error {
	seen := readHeld(obj)
	if seen == nil {
		return s.Delete(obj)
	}
	s.l.post(func() { s.l.sawJob(seen) })
	return nil
}

// Update implements [cache.ReflectorStore].
func (s jobStore) Update(obj any) error { return s.Add(obj) }

// Delete implements [cache.ReflectorStore]. It is also called when a Job no longer has the held label.
func (s jobStore) Delete(obj any) error {
	if j, ok := obj.(*batchv1.Job); ok {
		uid := j.UID
		s.l.post(func() { s.l.lostJob(uid) })
	}
	return nil
}

// Transformer implements [cache.TransformingStore]. It converts the Jobs of a streamed list to holds one by one, so
// that the complete list never has to fit in memory.
func (jobStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if h := readHeld(obj); h != nil {
			return h, nil
		}
		return nil, nil
	}
}

// Replace implements [cache.ReflectorStore]. The list contains the results of Transformer, or Jobs if the server
// does not support streaming lists.
func (s jobStore) Replace(list []any, _ string) error {
	seen := make([]*hold, 0, len(list))
	for i, obj := range list {
		if h := readHeld(obj); h != nil {
			seen = append(seen, h)
		}
		list[i] = nil // release the memory of each Job early: holds are much smaller
	}
	s.l.post(func() { s.l.sawJobs(seen) })
	return nil
}

// Resync implements [cache.ReflectorStore].
func (jobStore) Resync() error { return nil }

// sawJobs replaces the set of held Jobs with the given one.
func (l *Loop) sawJobs(all []*hold) {
	there := make(map[types.UID]struct{}, len(all))
	for _, j := range all {
		there[j.UID] = struct{}{}
	}
	for uid := range l.jobs.byUID {
		if _, ok := there[uid]; !ok {
			l.lostJob(uid)
		}
	}
	for _, j := range all {
		l.sawJob(j)
	}
}

func (l *Loop) lostJob(uid types.UID) {
	if h := l.jobs.byUID[uid]; h != nil { // also if another replica or the controller has released it
		l.latest.Add(uid, h.latest)
		l.jobs.remove(h)
	}
}

// sawJob adds or updates the hold of a Job that was read by readJob. If that panics, the Job is released.
func (l *Loop) sawJob(seen *hold) {
	if !safely(klog.Background(), func() { l.acceptJob(seen) }) {
		l.jobs.letGo(seen)
	}
}

func (l *Loop) acceptJob(seen *hold) {
	view := l.known()
	h := l.jobs.byUID[seen.UID]
	if h == nil {
		h = seen
		h.latest = h.firstDeadline(view)
		h.start = h.latest
		if !h.reported.IsZero() {
			h.start, h.basis = timeutil.Earlier(h.reported, h.latest), fixed
		}
		l.followPods()
		l.jobs.add(h)
	}
	h.HeldJob, h.finishBy, h.alike, h.cron = seen.HeldJob, seen.finishBy, seen.alike, seen.cron
	h.wrong = seen.wrong
	if seen.state == freed {
		l.jobs.free(h, seen.why())
		if seen.why() == resumed {
			h.reported = time.Time{} // no notification is needed: the Job was released by others
		}
		job, settings := h.question(view)
		h.asked = asks(&job, &settings)
		return
	}
	if view.Settled() { // otherwise planAll calls evaluate as soon as the policies are loaded
		l.evaluate(h, view)
	}
}

// firstDeadline returns the latest start of a Job that is seen for the first time. Until the policies are loaded,
// it uses the deadline that an earlier process wrote to the Job, because missing policies must neither prolong a
// hold nor end it immediately.
func (h *hold) firstDeadline(view *kube.View) time.Time {
	job, settings := h.settled(view)
	latest := job.LatestStart()
	if view.Settled() {
		return latest
	}
	if settings.AllowedDelay <= 0 {
		latest = job.Submitted.Add(unknownDelay + job.Done)
	}
	if !h.latest.IsZero() {
		// that process had loaded the policies and the schedule of the CronJob
		latest = timeutil.Earlier(latest, h.latest)
	}
	return latest
}

// unknownDelay is the provisional delay of a Job without a deadline until the policies are loaded. Loading them
// takes at most the timeout of kube.Objects.
const unknownDelay = 24 * time.Hour

func (l *Loop) releaseDueJobs(logger klog.Logger, now time.Time) {
	for _, h := range l.jobs.due(now, l.leads) {
		// otherwise the Job would remain in the state releasing forever
		if !safely(logger, func() { l.releaseJob(h, now) }) {
			safely(logger, func() { l.jobReleased(h, now, false, panics.ErrPanicked) })
		}
	}
}

// releaseJob sends a request that clears spec.suspend, or that hands the Job over to Kueue, which clears it itself.
// The request requires the held label, so that it has no effect if the Job has already been released, or if its
// user has removed the label to take over the Job.
func (l *Loop) releaseJob(h *hold, now time.Time) {
	job, first := h.HeldJob, h.failures == 0
	l.latest.Add(h.UID, h.latest) // before its pods exist
	if !h.Queued {
		l.awaitStart(h, now, true)
	}
	namespace, name := h.namespace(), h.name
	l.calls.add(func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		ours, err := false, panics.ErrPanicked
		safely(klog.FromContext(ctx), func() { ours, err = job.Release(call, l.c.Client, namespace, name, now) })
		if err != nil && first && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to release Job, retrying")
		}
		l.post(func() { l.jobReleased(h, now, ours, err) })
	}, h.forced, l.goes)
}

// A failed release is retried with exponential backoff from a quarter of a second to four seconds.
const (
	retryRelease = time.Second / 4
	maxDoublings = 4
	// max backoff after a deadline, so that an API server that has recovered receives the request within a second
	retryOverdue = 2 * retryRelease
)

func (l *Loop) jobReleased(h *hold, at time.Time, ours bool, err error) {
	if err != nil || !ours {
		l.cancelStart(h.UID)
	}
	if err != nil {
		now := l.clock.Now()
		retry := now.Add(retryRelease << h.failures)
		soon := timeutil.Later(now, h.latest).Add(retryOverdue)
		h.failures = min(h.failures+1, maxDoublings)
		l.jobs.fail(h, timeutil.Earlier(retry, soon))
		return
	}
	if l.jobs.byUID[h.UID] == h {
		l.jobs.remove(h)
	}
	if !h.Queued {
		l.released(h, at, ours)
	}
}
