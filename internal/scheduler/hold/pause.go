package hold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

const (
	pausesAtOnce = 8
	pauseTimeout = 3 * time.Second
	startTime    = time.Minute // for pods of a Job to start
)

// pauser pauses running Jobs with the label interruptible. The state of a pause is only in the Job: a single patch
// suspends it, makes it a held Job, and records the work that it has done. From then on it is planned and released
// like any other held Job, by the loop and by the controller, with a deadline that accounts for that work. If the Job
// is elastic, its number of pods changes by a patch that records the work that was done with the previous number.
type pauser struct {
	l     *Loop
	jobs  cache.Store // Jobs with the label that are not held
	again map[types.UID]*review
}

// review is the next time to consider a Job. The decision to run is valid until then or, if the time is zero, until the
// view changes.
type review struct {
	at    time.Time
	view  *kube.View
	fresh bool // no decision has been made yet, because its pods do not run
}

// pauseJobs pauses Jobs until ctx is done, which is when the Lease is lost. If two replicas do so, a Job is paused
// once, because the patch requires the version of the Job that was considered.
func (l *Loop) pauseJobs(ctx context.Context) {
	p := pauser{l, cache.NewStore(cache.MetaNamespaceKeyFunc), nil}
	running := func(o *metav1.ListOptions) {
		o.LabelSelector = v1alpha1.LabelInterruptible + "=true," + v1alpha1.LabelHeld + "!=true"
	}
	lw := kube.Watching(l.c.Client, l.c.Client.BatchV1().Jobs(metav1.NamespaceAll), running, func(error, bool) {})
	reflector := cache.NewReflectorWithOptions(lw, &batchv1.Job{}, p.jobs,
		cache.ReflectorOptions{Name: "interruptible Jobs"})
	go reflector.RunWithContext(klog.NewContext(ctx, logr.Discard())) // watchJobs logs errors of the same kind
	for pause := maxPause; kube.Pause(ctx, pause); {
		safely(klog.FromContext(ctx), func() { p.turn(ctx) })
		if pause = maxPause; len(p.jobs.ListKeys()) == 0 {
			pause = idlePause
		}
	}
}

// turn considers all running Jobs that are due.
func (p *pauser) turn(ctx context.Context) {
	view, now := p.l.known(), p.l.clock.Now()
	if !view.Settled() || panics.Open() {
		return
	}
	var calls errgroup.Group
	calls.SetLimit(pausesAtOnce)
	last := p.again
	p.again = map[types.UID]*review{}
	for _, o := range p.jobs.List() {
		j := o.(*batchv1.Job)
		if j.Status.StartTime == nil || policy.Parallelism(j) <= 0 || policy.NotSuspended(j) != "" {
			continue
		}
		next, seen := last[j.UID]
		if !seen || next.at.IsZero() && next.view != view || !next.at.IsZero() && !now.Before(next.at) {
			known := seen && !next.fresh
			d := p.ask(view, j, nil, now, known)
			next = &review{d.Again, view, false}
			// A decision of an earlier leader is valid until the next step of the rule. The work of an elastic Job is
			// only known from its pods.
			if d.held || d.job.Scaling != nil && (known || d.work.Marks.ScaledAt.IsZero()) {
				calls.Go(func() error {
					safely(klog.FromContext(ctx), func() { p.pause(ctx, view, j, known, next) })
					return nil
				})
			}
		}
		p.again[j.UID] = next
	}
	_ = calls.Wait() // the functions never return errors
}

// asked is a decision about a Job.
type asked struct {
	sched.Decision
	job      sched.Job
	settings policy.Settings
	work     policy.Work
	ran      time.Duration // work of the current run, including repeated work
	held     bool          // false if the Job continues to run, and if it may not be paused
}

// ask decides whether a Job continues to run, and on how many replicas, given the runs of its pods. If there are none,
// all pods are assumed to have been running since the Job was started. A Job that is not known yet is not paused, and
// the first decision on its replicas is that of its release.
func (p *pauser) ask(view *kube.View, j *batchv1.Job, runs []sched.Window, now time.Time, known bool) (d asked) {
	var err error
	d.work, err = policy.ReadJob(j)
	m := &d.work.Marks
	m.ReleasedBefore = false
	d.job, d.settings = view.Settle(&d.work)
	if err != nil || !d.settings.Enforced() || d.job.AllowedDelay <= 0 || d.job.Released || !d.job.Interruptible {
		return d
	}
	if len(runs) == 0 {
		runs = []sched.Window{{Start: j.Status.StartTime.Time, End: now}}
		if d.job.Scaling != nil { // then the range limits the number
			runs = slices.Repeat(runs, policy.Parallelism(j))
		}
	}
	d.ran = worked(m, d.job.Scaling, runs, now)
	if d.job.Scaling == nil || known || d.ran > m.Repeats()+startTime {
		// Work that must be repeated first remains to be done.
		d.job.Running, d.job.Done = true, max(0, d.job.Done+d.ran-m.Repeats())
	}
	d.job.RestartCost += m.Checkpoints // a pause may lose that much
	if d.job.Scaling != nil {
		d.job.RestartCost = max(d.job.RestartCost, startTime) // the others have such a minimum in their rules
	}
	d.Decision = p.l.c.opinion(view, now, d.job, d.settings)
	d.held = d.Held(now) && known
	return d
}

// pause tries to pause or scale a Job. A rejected attempt is repeated at the next step of its rule.
func (p *pauser) pause(ctx context.Context, view *kube.View, seen *batchv1.Job, known bool, next *review) {
	// Less than `kubenergy release` waits for Jobs that are suspended while it disables holding.
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	why, err := p.tryPause(ctx, view, seen, known, next)
	switch {
	case apierrors.IsNotFound(err) || errors.Is(err, context.Canceled): // the Job was deleted, or the Lease is lost
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to pause or scale Job", "job", klog.KObj(seen))
		if !apierrors.IsInvalid(err) {
			return
		}
		why = err.Error()
		fallthrough
	case why != "":
		object := p.l.jobs.object(seen.UID, seen.Namespace, seen.Name)
		p.l.post(func() { p.l.queueEvent(object, v1.EventTypeNormal, reasonNotPaused, "not paused or scaled: "+why) })
	}
}

// tryPause pauses or scales a Job if its rule still decides so with the exact times of its pods and, for a pause, would
// then hold the Job. It sets the time of the next step, and returns the reason if other conditions prevent a change.
func (p *pauser) tryPause(ctx context.Context, view *kube.View, seen *batchv1.Job, known bool, next *review,
) (why string, err error) {
	client := p.l.c.Client
	j, err := client.BatchV1().Jobs(seen.Namespace).Get(ctx, seen.Name, metav1.GetOptions{})
	if err != nil || j.UID != seen.UID || policy.NotSuspended(j) != "" || j.Labels[v1alpha1.LabelHeld] != "" ||
		j.DeletionTimestamp != nil {
		return "", err
	}
	runs, pods, completes, err := runsOf(ctx, client, j, p.l.clock.Now())
	now := p.l.clock.Now()
	if err != nil {
		return "", err
	}
	// Decide soon if the pods do not run yet, if the Job changes, or if a request fails.
	soon := review{now.Add(min(startTime, max(startTime/30, now.Sub(seen.Status.StartTime.Time)/2))), view, !known}
	if pods == 0 {
		*next = soon
		return "", nil
	}
	d := p.ask(view, j, runs, now, known)
	if next.at = d.Again; !d.held && !d.scales(j) {
		return "", nil
	}
	if completes {
		return "one of its pods has completed, so it would be complete without the others", nil
	}
	if why, err = disrupts(ctx, client, j, pods-d.Replicas); why != "" || err != nil {
		return why, err
	}
	// An uninstallation first deletes the binding of the policy that suspends Jobs, and then resumes all Jobs.
	if _, err = client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, kube.HoldPolicy,
		metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return "holding is disabled: the binding of the policy " + kube.HoldPolicy + " does not exist", nil
	} else if err != nil {
		return "", err
	}
	changed := false
	defer func() {
		if !changed && why == "" && !apierrors.IsInvalid(err) {
			*next = soon
		}
	}()
	if !d.held {
		changed, err = p.scale(ctx, view, j, &d, now)
		return "", err
	}
	// From now on, the question is that of the hold that follows.
	scaling, rate := d.job.Scaling, 0.
	if scaling != nil {
		rate = scaling.Rate(policy.Parallelism(j))
	}
	d.work.Marks.Pause(d.ran, rate)
	d.job, d.settings = view.Settle(&d.work)
	latest, err := kube.ReadDeadline(ctx, client, j.Namespace, &d.job, kube.RunOf(j))
	if err != nil {
		return "", err
	}
	d.job.StartBy(latest)
	d.Decision = p.l.c.opinion(view, now, d.job, d.settings)
	until := timeutil.Earlier(d.Window.Start, latest)
	grace := time.Duration(ptr.Deref(j.Spec.Template.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
	if until.Before(now.Add(grace + d.job.RestartCost)) {
		return fmt.Sprintf("it would be resumed at %s, before its pods have ended and work is repeated",
			until.UTC().Format(time.RFC3339)), nil
	}
	m := &d.work.Marks
	replicas := 0
	state := m.State(j.UID)
	state[v1alpha1.AnnotationHeldUntil] = until.UTC().Format(time.RFC3339)
	state[v1alpha1.AnnotationLatestStart] = latest.UTC().Format(time.RFC3339)
	state[v1alpha1.AnnotationHeldReason] = d.Reason.String()
	if scaling != nil {
		replicas = scaling.Least
	}
	if changed, err = p.patch(ctx, j, kube.PausePatch(j, replicas, state)); !changed {
		return "", err
	}
	p.l.post(func() { p.l.paused(j, now, until, view, &d) })
	return "", nil
}

// patch patches a Job. ok is false without an error if the Job was changed concurrently. A failed test of the patch
// cannot be distinguished from a rejection by an admission policy.
func (p *pauser) patch(ctx context.Context, j *batchv1.Job, patch []byte) (ok bool, err error) {
	jobs := p.l.c.Client.BatchV1().Jobs(j.Namespace)
	if _, err = jobs.Patch(ctx, j.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); apierrors.IsInvalid(err) {
		current, errGet := jobs.Get(ctx, j.Name, metav1.GetOptions{})
		if errGet == nil && current.ResourceVersion != j.ResourceVersion {
			return false, nil
		}
	}
	return err == nil, err
}

// record records a decision about a running Job.
func (l *Loop) record(action string, j *batchv1.Job, at time.Time, d *asked, r ledger.Record,
	question *sched.Snapshot,
) {
	record.Decided(action, d.settings.Strategy(), d.Reason.Kind.String())
	if l.c.Record == nil {
		return
	}
	r.Action, r.At, r.Namespace, r.OwnerKind, r.Owner = action, at, j.Namespace, "Job", j.Name
	r.UID, r.Strategy, r.Reason = string(j.UID), d.settings.Strategy(), d.Reason.Kind.String()
	r.Saving, r.Saved = d.Reason.Saving, d.Reason.Carbon
	l.c.Record(&record.Entry{Record: r, Question: question})
}

// paused records a pause and informs the owner.
func (l *Loop) paused(j *batchv1.Job, at, until time.Time, view *kube.View, d *asked) {
	text := fmt.Sprintf("paused after %v of work: %v", d.work.Marks.Worked, d.Reason)
	l.queueEvent(l.jobs.object(j.UID, j.Namespace, j.Name), v1.EventTypeNormal, reasonPaused, text)
	l.record(record.Pause, j, at, d, ledger.Record{Message: d.Reason.String(), Start: until},
		view.Question(at, d.job, d.settings))
}

// runsOf returns the runs of the pods in the current run of a Job, ordered by start, and the number of running pods.
// completes is set if the Job is complete as soon as no pod is active, because a pod of a work queue has completed or
// because fewer indexes may already be complete.
func runsOf(ctx context.Context, client kubernetes.Interface, j *batchv1.Job, now time.Time) (runs []sched.Window,
	running int, completes bool, err error,
) {
	pods, err := client.CoreV1().Pods(j.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(j.Spec.Selector), // always set by the API server
	})
	if err != nil {
		return nil, 0, false, err
	}
	succeeded := j.Status.Succeeded > 0
	for i := range pods.Items {
		pod := &pods.Items[i]
		succeeded = succeeded || pod.Status.Phase == v1.PodSucceeded
		var run sched.Window
		for _, c := range pod.Status.ContainerStatuses {
			w := sched.Window{End: now}
			if c.State.Running != nil {
				w.Start = c.State.Running.StartedAt.Time
			} else if t := c.State.Terminated; t != nil {
				w = sched.Window{Start: t.StartedAt.Time, End: t.FinishedAt.Time}
			}
			earlierRun := j.Status.StartTime != nil && w.Start.Before(j.Status.StartTime.Time)
			if w.Start.IsZero() || earlierRun {
				continue
			}
			if run.Start.IsZero() || w.Start.Before(run.Start) {
				run.Start = w.Start
			}
			run.End = timeutil.Later(run.End, w.End)
		}
		if !run.Start.IsZero() {
			runs = append(runs, run)
		}
		if pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil {
			running++
		}
	}
	if len(runs) == 0 {
		return nil, 0, false, nil
	}
	slices.SortFunc(runs, func(a, b sched.Window) int { return a.Start.Compare(b.Start) })
	return runs, running, succeeded && (j.Spec.Completions == nil || policy.ElasticIndexed(j)), nil
}

// disrupts returns the reason why a number of the running pods of a Job must not be deleted now, or "". The Job
// controller itself does not respect PodDisruptionBudgets.
func disrupts(ctx context.Context, client kubernetes.Interface, j *batchv1.Job, deleted int) (why string, err error) {
	if deleted <= 0 {
		return "", nil
	}
	budgets, err := client.PolicyV1().PodDisruptionBudgets(j.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range budgets.Items {
		b := &budgets.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(j.Spec.Template.Labels)) &&
			int(b.Status.DisruptionsAllowed) < deleted {
			return fmt.Sprintf("PodDisruptionBudget %s allows %d disruptions, and %d pods would be deleted", b.Name,
				b.Status.DisruptionsAllowed, deleted), nil
		}
	}
	return "", nil
}
