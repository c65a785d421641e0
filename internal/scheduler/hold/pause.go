package hold

import (
	"context"
	"fmt"
	"strconv"
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
	// pauseRetry is the time after which a pause that failed or was not possible is considered again, unless the rule
	// decides earlier.
	pauseRetry = 10 * time.Minute
)

// pauser pauses running Jobs with the label interruptible. The state of a pause is only in the Job: a single patch
// suspends it, makes it a held Job, and records the work that it has done. From then on it is planned and released
// like any other held Job, by the loop and by the controller, with a deadline that accounts for that work.
type pauser struct {
	l     *Loop
	jobs  cache.Store // Jobs with the label that are not held
	again map[types.UID]review
}

// review is the next time to consider a Job. The decision to run is valid until then or, if the time is zero, until the
// view changes.
type review struct {
	at   time.Time
	view *kube.View
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
	p.again = map[types.UID]review{}
	for _, o := range p.jobs.List() {
		j := o.(*batchv1.Job)
		if j.Status.StartTime == nil || policy.NotSuspended(j) != "" {
			continue
		}
		next, known := last[j.UID]
		due := !known || next.at.IsZero() && next.view != view || !next.at.IsZero() && !now.Before(next.at)
		if due {
			d, held := p.ask(view, j, j.Status.StartTime.Time, now)
			// A start, and a decision of an earlier leader, is valid until the next step of the rule.
			if next = (review{d.Again, view}); held && known {
				if soon := now.Add(pauseRetry); next.at.IsZero() || soon.Before(next.at) {
					next.at = soon
				}
				calls.Go(func() error {
					safely(klog.FromContext(ctx), func() { p.pause(ctx, view, j) })
					return nil
				})
			}
		}
		p.again[j.UID] = next
	}
	_ = calls.Wait() // the functions never return errors
}

// asked is a decision about a running Job.
type asked struct {
	sched.Decision
	job      sched.Job // as running
	settings policy.Settings
	marks    policy.Marks
	useful   time.Duration // work since the run started, without repeated work
}

// ask decides whether a Job should continue to run, given the start of its current run. held is false if it may not be
// paused.
func (p *pauser) ask(view *kube.View, j *batchv1.Job, since, now time.Time) (d asked, held bool) {
	work, err := policy.ReadJob(j)
	work.Marks.ReleasedBefore = false
	d.job, d.settings = view.Settle(&work)
	if err != nil || !d.settings.Enforced() || d.job.AllowedDelay <= 0 || d.job.Released || !d.job.Interruptible {
		return d, false
	}
	d.marks = work.Marks
	d.useful = max(0, now.Sub(since)-d.marks.Repeats()).Truncate(time.Second)
	d.job.Running, d.job.Done = true, d.job.Done+d.useful
	d.job.Foresee()
	d.Decision = p.l.c.opinion(view, now, d.job, d.settings)
	return d, d.Held(now)
}

// pause decides again with the exact times of the Job's pods, and then pauses it.
func (p *pauser) pause(ctx context.Context, view *kube.View, seen *batchv1.Job) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	why, err := p.tryPause(ctx, view, seen)
	object := p.l.jobs.object(seen.UID, seen.Namespace, seen.Name)
	switch {
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil:
		klog.FromContext(ctx).Error(err, "Failed to pause Job", "job", klog.KObj(seen))
	case why != "":
		p.l.post(func() { p.l.queueEvent(object, v1.EventTypeNormal, reasonNotPaused, "not paused: "+why) })
	}
}

// tryPause returns the reason why a Job that should be paused is not.
func (p *pauser) tryPause(ctx context.Context, view *kube.View, seen *batchv1.Job) (why string, err error) {
	client := p.l.c.Client
	// An uninstallation first deletes the binding of the policy that suspends Jobs, and then resumes all Jobs.
	_, err = client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, kube.HoldPolicy,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "holding is disabled: the binding of the policy " + kube.HoldPolicy + " does not exist", nil
	}
	if err != nil {
		return "", err
	}
	j, err := client.BatchV1().Jobs(seen.Namespace).Get(ctx, seen.Name, metav1.GetOptions{})
	if err != nil || j.UID != seen.UID || policy.NotSuspended(j) != "" || j.Labels[v1alpha1.LabelHeld] != "" ||
		j.DeletionTimestamp != nil {
		return "", err
	}
	since, pods, err := runningSince(ctx, client, j)
	now := p.l.clock.Now()
	if err != nil || pods == 0 {
		return "", err
	}
	d, held := p.ask(view, j, since, now)
	if !held {
		return "", nil
	}
	if why, err = disrupts(ctx, client, j, pods); why != "" || err != nil {
		return why, err
	}
	paused, pause := d.paused(now.Sub(since))
	latest, err := kube.ReadDeadline(ctx, client, j.Namespace, &paused, kube.RunOf(j))
	if err != nil {
		return "", err
	}
	until := timeutil.Earlier(d.Window.Start, latest)
	grace := time.Duration(ptr.Deref(j.Spec.Template.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
	if until.Before(now.Add(grace + d.job.RestartCost)) {
		return fmt.Sprintf("it would be resumed at %s, before its pods have ended and work is repeated",
			until.UTC().Format(time.RFC3339)), nil
	}
	pause[v1alpha1.AnnotationHeldUntil] = until.UTC().Format(time.RFC3339)
	pause[v1alpha1.AnnotationLatestStart] = latest.UTC().Format(time.RFC3339)
	pause[v1alpha1.AnnotationHeldReason] = d.Reason.String()
	_, err = client.BatchV1().Jobs(j.Namespace).Patch(ctx, j.Name, types.JSONPatchType, kube.PausePatch(j, pause),
		metav1.PatchOptions{})
	if err == nil {
		p.l.post(func() { p.l.paused(j, now, until, view, &d) })
	}
	return "", err
}

// paused returns the job after a pause, and the annotations that record its progress. ran is the length of the run.
func (d *asked) paused(ran time.Duration) (job sched.Job, annotations map[string]string) {
	m, job := &d.marks, d.job
	lost := time.Duration(0)
	if m.Checkpoints > 0 {
		lost = d.useful % m.Checkpoints
	}
	job.Running, job.Done = false, m.Worked+d.useful-lost
	// The repeated work of the next run is counted in advance, so that the cost of the last pause is counted too.
	lost += m.Lost - m.Repeats() + min(ran.Truncate(time.Second), m.Repeats()) + m.RestartCost
	return job, map[string]string{
		v1alpha1.AnnotationWorked: job.Done.String(), v1alpha1.AnnotationLostWork: lost.String(),
		v1alpha1.AnnotationPauses: strconv.Itoa(m.Pauses + 1),
	}
}

// paused records a pause and informs the owner.
func (l *Loop) paused(j *batchv1.Job, at, until time.Time, view *kube.View, d *asked) {
	text := fmt.Sprintf("paused after %v of work: %v", d.marks.Worked+d.useful, d.Reason)
	l.queueEvent(l.jobs.object(j.UID, j.Namespace, j.Name), v1.EventTypeNormal, reasonPaused, text)
	record.Decided(record.Pause, d.settings.Strategy(), d.Reason.Kind.String())
	if l.c.Record != nil {
		l.c.Record(&record.Entry{Record: ledger.Record{
			Action: record.Pause, At: at, Namespace: j.Namespace, OwnerKind: "Job", Owner: j.Name, UID: string(j.UID),
			Strategy: d.settings.Strategy(), Message: d.Reason.String(), Start: until, Reason: d.Reason.Kind.String(),
			Saving: d.Reason.Saving, Saved: d.Reason.Carbon,
		}, Question: view.Question(at, d.job, d.settings)})
	}
}

// runningSince returns the start of the first container in the current run of a Job, and the number of its running
// pods.
func runningSince(ctx context.Context, client kubernetes.Interface, j *batchv1.Job) (since time.Time, running int,
	err error,
) {
	selector := labels.Set{batchv1.ControllerUidLabel: string(j.UID)}.String()
	pods, err := client.CoreV1().Pods(j.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return since, 0, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, c := range pod.Status.ContainerStatuses {
			var at metav1.Time
			if c.State.Running != nil {
				at = c.State.Running.StartedAt
			} else if c.State.Terminated != nil {
				at = c.State.Terminated.StartedAt
			}
			earlierRun := j.Status.StartTime != nil && at.Before(j.Status.StartTime)
			if !at.IsZero() && !earlierRun && (since.IsZero() || at.Time.Before(since)) {
				since = at.Time
			}
		}
		if pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil {
			running++
		}
	}
	if since.IsZero() {
		running = 0
	}
	return since, running, nil
}

// disrupts returns the reason why the pods of a Job must not be deleted now, or "". The Job controller itself does not
// respect PodDisruptionBudgets.
func disrupts(ctx context.Context, client kubernetes.Interface, j *batchv1.Job, pods int) (why string, err error) {
	budgets, err := client.PolicyV1().PodDisruptionBudgets(j.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range budgets.Items {
		b := &budgets.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(j.Spec.Template.Labels)) &&
			int(b.Status.DisruptionsAllowed) < pods {
			return fmt.Sprintf("PodDisruptionBudget %s allows %d disruptions, and %d pods are running", b.Name,
				b.Status.DisruptionsAllowed, pods), nil
		}
	}
	return "", nil
}
