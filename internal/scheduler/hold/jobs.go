package hold

import (
	"context"
	"errors"
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
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// readJob reads a Job with our label: what the loop needs of it is a small part of the object. Where it is not to be
// held, it is freed, for the reason given. Its deadline is the one that an earlier process took, if any. Its priority
// is mostly 0: the API server resolves the name of a priority class in pods only.
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
		never, why, h.wrong = true, "all energy annotations here are ignored: "+err.Error(), true
	case !never && (j.Spec.Suspend == nil || !*j.Spec.Suspend):
		never, why = true, resumed
	}
	if never {
		h.state, h.reason = freed, unique.Make(why)
	}
	h.cron = kube.RunOf(j)
	return h
}

// readHeld returns what is kept of an object that was seen; nil if it is no Job with our label.
func readHeld(obj any) *hold {
	switch o := obj.(type) {
	case *hold: // of a list that was streamed: see Transformer
		return o
	case *batchv1.Job:
		if o.Labels[v1alpha1.LabelHeld] == "true" {
			return readSafely(o, readJob)
		}
	}
	return nil
}

// readSafely reads a Job; one that makes the reader panic is let go.
func readSafely(j *batchv1.Job, read func(*batchv1.Job) *hold) (h *hold) {
	defer func() {
		if r := recover(); r != nil {
			panics.Note("objects")
			klog.Background().Error(nil, "Reading a Job panicked: it is let go", "job", klog.KObj(j), "panic", r)
			h = &hold{HeldJob: kube.SeenJob(j), state: freed, reason: unique.Make(unreadable)}
			h.remember(policy.Work{Namespace: j.Namespace, Name: j.Name, Submitted: j.CreationTimestamp.Time})
		}
	}()
	return read(j)
}

// unreadable is why what makes us panic is let go.
const unreadable = "it cannot be read"

// timeIn returns the time that an annotation names; zero: none.
func timeIn(j *batchv1.Job, annotation string) time.Time {
	t, _ := time.Parse(time.RFC3339, j.Annotations[annotation])
	return t
}

// resumed is why a Job is let go that its user, or another controller, lets run.
const resumed = "it was resumed"

// watchJobs follows the Jobs with our label. It keeps no copies of them, so that a hundred thousand held Jobs fit in
// the memory of a scheduler. It is no part of kube-scheduler's informers, all of which must have synced before the
// first pod is scheduled: without permission on Jobs it goes on trying, and pods are served meanwhile.
func (l *Loop) watchJobs(ctx context.Context) {
	ours := func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.LabelHeld + "=true" }
	logger := klog.FromContext(ctx)
	var last string
	note := func(err error, _ bool) {
		// Every attempt would log the same otherwise.
		if err != nil && err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			logger.Error(err, "Jobs cannot be watched: held ones stay suspended until they can")
		}
	}
	lw := kube.Watching(l.c.Client, l.c.Client.BatchV1().Jobs(metav1.NamespaceAll), ours, note)
	reflector := cache.NewReflectorWithOptions(lw, &batchv1.Job{}, jobStore{l},
		cache.ReflectorOptions{Name: "held Jobs"})
	reflector.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

// jobStore hands what a reflector sees to the loop.
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

// Delete implements [cache.ReflectorStore]. It is also called when a Job has lost our label.
func (s jobStore) Delete(obj any) error {
	if j, ok := obj.(*batchv1.Job); ok {
		uid := j.UID
		s.l.post(func() { s.l.lostJob(uid) })
	}
	return nil
}

// Transformer implements [cache.TransformingStore]: of the Jobs that a list streams in no more is kept until it is
// complete than afterwards.
func (jobStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if h := readHeld(obj); h != nil {
			return h, nil
		}
		return nil, nil
	}
}

// Replace implements [cache.ReflectorStore]. The list is of what Transformer made, or of Jobs from a server that
// streams none.
func (s jobStore) Replace(list []any, _ string) error {
	seen := make([]*hold, 0, len(list))
	for i, obj := range list {
		if h := readHeld(obj); h != nil {
			seen = append(seen, h)
		}
		list[i] = nil // a hundred thousand Jobs are more than their holds
	}
	s.l.post(func() { s.l.sawJobs(seen) })
	return nil
}

// Resync implements [cache.ReflectorStore].
func (jobStore) Resync() error { return nil }

// sawJobs takes in all Jobs that are held.
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
	if h := l.jobs.byUID[uid]; h != nil {
		l.jobs.remove(h)
	}
}

// sawJob takes in a held Job, as readJob made it, or what has changed on it. One that cannot be taken in is let go.
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
	if seen.state == freed {
		l.jobs.free(h, seen.why())
		h.reported = time.Time{} // it was never held, or others released it: there is nothing to tell
		job, settings := h.question(view)
		h.asked = asks(&job, &settings)
		return
	}
	if view.Settled() { // else planAll settles it as soon as the policies are known
		l.evaluate(h, view)
	}
}

// firstDeadline returns the latest start of a Job that is seen for the first time. Until policies are known it is what
// an earlier process wrote on it, since what is not known must neither hold a Job for longer nor let go of it at once.
func (h *hold) firstDeadline(view *kube.View) time.Time {
	job, settings := h.settled(view)
	latest := job.LatestStart()
	if view.Settled() {
		return latest
	}
	if settings.AllowedDelay <= 0 {
		latest = job.Submitted.Add(unknownDelay)
	}
	if !h.latest.IsZero() {
		latest = timeutil.Earlier(latest, h.latest) // that knew the limits, and the schedule of its CronJob
	}
	return latest
}

// unknownDelay holds Jobs of which nothing is known until the policies are; they are waited for no longer than the
// timeout of kube.Objects.
const unknownDelay = 24 * time.Hour

// clampToTick makes sure that a CronJob's run ends before the next one is due. A schedule that cannot be read is no
// reason to lose a run: it is let go.
func (l *Loop) clampToTick(ctx context.Context, uid types.UID, namespace, name string, run *kube.Run, job sched.Job,
	wishes uint64,
) {
	// A thousand CronJobs tick at the full hour, and releases use the same client.
	l.lookups <- struct{}{}
	defer func() { <-l.lookups }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	latest, err := time.Time{}, errPanicked // a schedule may make its parser panic
	safely(klog.FromContext(ctx), func() { latest, err = kube.ReadDeadline(ctx, l.c.Client, namespace, &job, run) })
	if err != nil {
		klog.FromContext(ctx).Error(err, "Not held", "job", klog.KRef(namespace, name))
	}
	l.post(func() {
		h := l.jobs.byUID[uid]
		if h == nil || h.state != lookingUp || h.asked != wishes {
			return
		}
		l.jobs.enter(h, waiting)
		l.jobs.plan(h)
		if err != nil {
			l.jobs.free(h, "the schedule of its CronJob cannot be read")
			return
		}
		l.setLatest(h, latest) // which standbys obey, too
		if latest.Before(job.LatestStart()) && !latest.After(l.clock.Now()) {
			l.jobs.free(h, "it is to end before the next run of its CronJob")
		}
	})
}

func (l *Loop) releaseDueJobs(logger klog.Logger, now time.Time) {
	for _, h := range l.jobs.due(now, l.leads) {
		if !safely(logger, func() { l.releaseJob(h, now) }) { // or it would count as on its way for ever
			safely(logger, func() { l.jobReleased(h, now, false, errPanicked) })
		}
	}
}

var errPanicked = errors.New("that panicked")

// releaseJob lets the API server clear spec.suspend, or hands the Job over to Kueue, which does so itself. The label is
// the guard: a second release, or one after its user took the Job over by removing the label, changes nothing.
func (l *Loop) releaseJob(h *hold, now time.Time) {
	job, first := h.HeldJob, h.failures == 0
	if !h.Queued {
		l.awaitStart(h, now, true)
	}
	namespace, name := h.namespace(), h.name
	l.calls.add(func(ctx context.Context) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		ours, err := false, errPanicked
		safely(klog.FromContext(ctx), func() { ours, err = job.Release(call, l.c.Client, namespace, name, now) })
		if err != nil && first && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Not released yet: trying again")
		}
		l.post(func() { l.jobReleased(h, now, ours, err) })
	}, h.forced, l.goes)
}

// A release that went wrong is tried again after a quarter of a second, then half, … up to four.
const (
	retryRelease = time.Second / 4
	maxDoublings = 4
	retryOverdue = 2 * retryRelease // past a deadline, so that a server which comes back is asked within a second
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
