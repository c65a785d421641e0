package hold

import (
	"context"
	"errors"
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
	pauseTimeout = 3 * time.Second
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
		if !known || next.at.IsZero() && next.view != view || !next.at.IsZero() && !now.Before(next.at) {
			d, held := p.ask(view, j, j.Status.StartTime.Time, now)
			next = review{d.Again, view}
			// A start, and a decision of an earlier leader, is valid until the next step of the rule.
			if held && known {
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

// asked is a decision about a Job.
type asked struct {
	sched.Decision
	job      sched.Job
	settings policy.Settings
	work     policy.Work
	useful   time.Duration // work of the current run, without repeated work
}

// ask decides whether a Job continues to run, given the start of its current run. held is false if it does, and if it
// may not be paused.
func (p *pauser) ask(view *kube.View, j *batchv1.Job, since, now time.Time) (d asked, held bool) {
	var err error
	d.work, err = policy.ReadJob(j)
	m := &d.work.Marks
	m.ReleasedBefore = false
	d.job, d.settings = view.Settle(&d.work)
	if err != nil || !d.settings.Enforced() || d.job.AllowedDelay <= 0 || d.job.Released || !d.job.Interruptible {
		return d, false
	}
	d.useful = max(0, now.Sub(since)-m.Repeats()).Truncate(time.Second)
	d.job.Running, d.job.Done = true, d.job.Done+d.useful
	d.job.RestartCost += m.Checkpoints // a pause may lose that much
	d.Decision = p.l.c.opinion(view, now, d.job, d.settings)
	return d, d.Held(now)
}

// pause tries to pause a Job. A failed attempt is repeated at the next step of its rule.
func (p *pauser) pause(ctx context.Context, view *kube.View, seen *batchv1.Job) {
	// Less than `kubenergy release` waits for Jobs that are suspended while it disables holding.
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	why, err := p.tryPause(ctx, view, seen)
	switch {
	case apierrors.IsNotFound(err) || errors.Is(err, context.Canceled): // the Job was deleted, or the Lease is lost
	case err != nil:
		klog.FromContext(ctx).Error(err, "Failed to pause Job", "job", klog.KObj(seen))
	case why != "":
		object := p.l.jobs.object(seen.UID, seen.Namespace, seen.Name)
		p.l.post(func() { p.l.queueEvent(object, v1.EventTypeNormal, reasonNotPaused, "not paused: "+why) })
	}
}

// tryPause pauses a Job if its rule still decides so with the exact times of its pods, and would then hold the paused
// Job. It returns the reason if other conditions prevent a pause.
func (p *pauser) tryPause(ctx context.Context, view *kube.View, seen *batchv1.Job) (why string, err error) {
	client := p.l.c.Client
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
	// From now on, the question is that of the hold that follows.
	d.work.Marks.Pause(now.Sub(since).Truncate(time.Second), d.useful)
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
	patch := kube.PausePatch(j, map[string]string{
		v1alpha1.AnnotationWorked: m.Worked.String(), v1alpha1.AnnotationLostWork: m.Lost.String(),
		v1alpha1.AnnotationPauses: strconv.Itoa(m.Pauses), v1alpha1.AnnotationPaused: string(j.UID),
		v1alpha1.AnnotationHeldUntil:   until.UTC().Format(time.RFC3339),
		v1alpha1.AnnotationLatestStart: latest.UTC().Format(time.RFC3339),
		v1alpha1.AnnotationHeldReason:  d.Reason.String(),
	})
	// An uninstallation first deletes the binding of the policy that suspends Jobs, and then resumes all Jobs.
	_, err = client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(ctx, kube.HoldPolicy,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "holding is disabled: the binding of the policy " + kube.HoldPolicy + " does not exist", nil
	}
	if err == nil {
		_, err = client.BatchV1().Jobs(j.Namespace).Patch(ctx, j.Name, types.JSONPatchType, patch,
			metav1.PatchOptions{})
	}
	switch {
	case err == nil:
		p.l.post(func() { p.l.paused(j, now, until, view, &d) })
	case apierrors.IsInvalid(err): // rejected by an admission policy, or the Job has changed
		current, errGet := client.BatchV1().Jobs(j.Namespace).Get(ctx, j.Name, metav1.GetOptions{})
		if errGet == nil && current.ResourceVersion != j.ResourceVersion {
			return "", nil
		}
	}
	return "", err
}

// paused records a pause and informs the owner.
func (l *Loop) paused(j *batchv1.Job, at, until time.Time, view *kube.View, d *asked) {
	text := fmt.Sprintf("paused after %v of work: %v", d.work.Marks.Worked, d.Reason)
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
	pods, err := client.CoreV1().Pods(j.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(j.Spec.Selector), // always set by the API server
	})
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
