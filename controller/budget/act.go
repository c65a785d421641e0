package budget

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
)

// The reasons of our events. The first is Compute Gardener's.
const (
	eventExceeded  = "EnergyBudgetExceeded"
	eventWarning   = "EnergyBudgetWarning"
	eventSuspended = "EnergyBudgetSuspended"
	eventResumed   = "EnergyBudgetResumed"
	reporter       = "kubenergy-controller"
)

// act does what was claimed in the status that was just written.
func (e *Engine) act(ctx context.Context, c *budgetCase, due []int, now time.Time) {
	results := map[action]error{}
	for _, i := range due {
		t := c.budget.Status.Actions[i]
		a := action{t.At, t.Do, t.Webhook}
		if t.Attempts == 1 {
			e.metrics.took(c.budget.Namespace, "", t.Do, t.At)
		}
		switch t.Do {
		case v1alpha1.DeedHoldNewWork: // its status says so
		case v1alpha1.DeedNotify:
			e.notices.add(&notice{
				engine: e, budget: c.budget.DeepCopy(), action: a, url: t.Webhook, message: messageOf(c, &t, now), namespace: c.budget.Namespace,
			})
		default:
			results[a] = e.once(ctx, c, &t, now)
		}
	}
	e.done(ctx, c.budget, results, now)
}

// once does one thing.
func (e *Engine) once(ctx context.Context, c *budgetCase, t *v1alpha1.BudgetActionTaken, now time.Time) error {
	b := c.budget
	switch t.Do {
	case v1alpha1.DeedLog:
		e.o.Log.Warn("an EnergyBudget is used up, or nearly", "namespace", b.Namespace, "budget", b.Name, "percent", t.Percent, "at", t.At,
			"periodStart", c.period.from, "periodEnd", c.period.to)
	case v1alpha1.DeedEvent:
		about := v1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "EnergyBudget", Namespace: b.Namespace, Name: b.Name, UID: b.UID,
		}
		return e.event(ctx, about, reasonOf(t.At), keyOf(b, c.period, t), sentence(c, t), now)
	case v1alpha1.DeedAnnotate, v1alpha1.DeedLabel:
		return e.mark(ctx, c, t)
	case v1alpha1.DeedSuspend:
		return e.suspendFor(ctx, c, now)
	}
	return nil
}

func reasonOf(at int32) string {
	if at < whole {
		return eventWarning
	}
	return eventExceeded
}

// keyOf is the same whoever does something, and however often: events are named by it, and webhooks carry it.
func keyOf(b *v1alpha1.EnergyBudget, p period, t *v1alpha1.BudgetActionTaken) string {
	return digest(string(b.UID), p.from.UTC().Format(time.RFC3339), fmt.Sprint(t.Generation), action{t.At, t.Do, t.Webhook}.String(), t.Webhook)
}

func digest(parts ...string) string {
	const kept = 10
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:kept])
}

func sentence(c *budgetCase, t *v1alpha1.BudgetActionTaken) string {
	of := "its lifetime"
	if !c.period.to.IsZero() {
		of = "the period that ends " + c.period.to.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%.4g%% of the budget for %s is used; %s at %d%%", t.Percent, of, t.Do, t.At)
}

// event writes an event, once: who comes second finds it there.
func (e *Engine) event(ctx context.Context, about v1.ObjectReference, reason, key, text string, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	const longest = 200 // of the 253 that a name may have
	name := about.Name
	if len(name) > longest {
		name = strings.TrimRight(name[:longest], "-.")
	}
	kind := v1.EventTypeWarning
	if reason == eventResumed {
		kind = v1.EventTypeNormal
	}
	err := e.o.Client.Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: about.Namespace, Name: name + "." + key},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: reporter, ReportingInstance: bounded(e.o.Identity),
		Action: "Budgeting", Reason: reason, Regarding: about, Note: text, Type: kind,
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing an event: %w", err)
	}
	return nil
}

// maxMarked is how many Jobs and pods an action writes on.
const maxMarked = 1000

// mark writes on the Jobs and pods that count, and that go on, that the budget is exceeded.
func (e *Engine) mark(ctx context.Context, c *budgetCase, t *v1alpha1.BudgetActionTaken) error {
	b := c.budget
	over := 0.0
	if c.use != nil && b.Spec.Limits.EnergyKWh != nil {
		over = max(0, kWh(c.use.Energy())-*b.Spec.Limits.EnergyKWh)
	}
	var objects []client.Object
	var jobs batchv1.JobList
	if err := e.o.Client.List(ctx, &jobs, client.InNamespace(b.Namespace)); err != nil {
		return fmt.Errorf("listing Jobs: %w", err)
	}
	for i := range jobs.Items {
		owners := kube.JobOwners(&jobs.Items[i])
		if why := kube.NotSuspended(&jobs.Items[i]); why != "it has ended" && owners.InScope(&b.Spec.Scope) {
			objects = append(objects, &jobs.Items[i])
		}
	}
	var pods v1.PodList
	if err := e.o.Client.List(ctx, &pods, client.InNamespace(b.Namespace)); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		if owners := kube.PodOwners(&pods.Items[i]); apart(&pods.Items[i]) && owners.InScope(&b.Spec.Scope) {
			objects = append(objects, &pods.Items[i])
		}
	}
	if len(objects) > maxMarked {
		e.o.Log.Warn("an EnergyBudget counts more than is marked", "namespace", b.Namespace, "budget", b.Name, "objects", len(objects), "marked", maxMarked)
		objects = objects[:maxMarked]
	}
	var failed []error
	for _, o := range objects {
		annotations, labels := exceeded(t.Do, over, false)
		if has(o.GetAnnotations(), annotations) && has(o.GetLabels(), labels) {
			continue
		}
		if err := e.markOne(ctx, o, annotations, labels); err != nil {
			failed = append(failed, err)
		}
	}
	return first(failed, "writing on Jobs and pods")
}

// markOne writes on an object as it is by now: whether others change it does not matter here.
func (e *Engine) markOne(ctx context.Context, o client.Object, annotations, labels map[string]string) error {
	const tries = 3
	var err error
	for range tries {
		if err = e.patch(ctx, o, types.MergePatchType, kube.MarkPatch(o, annotations, labels, false)); !errors.Is(err, errChanged) {
			return err
		}
		if err := e.o.Direct.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return err
}

func has(all, some map[string]string) bool {
	for k, v := range some {
		if all[k] != v {
			return false
		}
	}
	return true
}

// first returns the first of some errors, as one that says how many there were.
func first(errs []error, what string) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d went wrong, the first: %w", what, len(errs), errs[0])
}

// apart reports whether a pod lives and is not run by a Job.
func apart(p *v1.Pod) bool {
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(p)
	return owner == nil || owner.Kind != "Job"
}

// exceeded returns what is written on what has used up a budget, and more.
func exceeded(do v1alpha1.BudgetDeed, over float64, theirs bool) (annotations, labels map[string]string) {
	const yes = "true"
	if do == v1alpha1.DeedLabel {
		labels = map[string]string{kube.AnnotationBudgetExceeded: yes}
		if theirs {
			labels[kube.GardenerBudgetExceeded] = yes
		}
		return nil, labels
	}
	by := fmt.Sprintf("%.6f", over)
	annotations = map[string]string{kube.AnnotationBudgetExceeded: yes, kube.AnnotationBudgetExceededBy: by}
	if theirs {
		annotations[kube.GardenerBudgetExceeded], annotations[kube.GardenerBudgetExceededBy] = yes, by
	}
	return annotations, nil
}

// errChanged says that an object is not as it was seen: the next look sees it as it is.
var errChanged = errors.New("it has changed since")

// patch changes an object as it was seen. One that is gone needs no change.
func (e *Engine) patch(ctx context.Context, o client.Object, kind types.PatchType, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	target, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return errors.New("not an object")
	}
	err := e.o.Client.Patch(ctx, target, client.RawPatch(kind, patch))
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	// A test of a patch that fails and a refusal by an admission policy look the same.
	current, _ := o.DeepCopyObject().(client.Object)
	if errGet := e.o.Direct.Get(ctx, client.ObjectKeyFromObject(o), current); apierrors.IsNotFound(errGet) ||
		errGet == nil && current.GetResourceVersion() != o.GetResourceVersion() {
		return fmt.Errorf("%s/%s: %w: %w", o.GetNamespace(), o.GetName(), errChanged, err)
	}
	return fmt.Errorf("%s/%s: %w", o.GetNamespace(), o.GetName(), err)
}

// suspends reports whether a budget keeps Jobs suspended.
func (c *budgetCase) suspends(now time.Time) bool {
	return c.err == nil && c.period.holds(now) && inForce(&c.budget.Status, v1alpha1.DeedSuspend) && statusPeriod(&c.budget.Status).same(c.period)
}

// suspendAll suspends whatever runs for budgets that are used up, and began after that, too.
func (e *Engine) suspendAll(ctx context.Context, all []*budgetCase) {
	for _, c := range all {
		now := e.o.Now()
		if !c.suspends(now) {
			continue
		}
		e.safely("suspending Jobs", func() {
			if err := e.suspendFor(ctx, c, now); err != nil {
				e.o.Log.Warn("suspending Jobs for an EnergyBudget: trying again", "namespace", c.budget.Namespace, "budget", c.budget.Name, "error", err)
			}
		})
	}
}

// suspendFor suspends the Jobs of a budget that run.
func (e *Engine) suspendFor(ctx context.Context, c *budgetCase, now time.Time) error {
	var jobs batchv1.JobList
	if err := e.o.Client.List(ctx, &jobs, client.InNamespace(c.budget.Namespace)); err != nil {
		return fmt.Errorf("listing Jobs: %w", err)
	}
	label := kube.BudgetLabel(c.budget.Name)
	var running []*batchv1.Job
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if owners := kube.JobOwners(j); owners.InScope(&c.budget.Spec.Scope) && maySuspend(j, label) {
			running = append(running, j)
		}
	}
	if len(running) == 0 {
		return nil
	}
	if err := e.mayNow(ctx); err != nil {
		return err
	}
	var mu sync.Mutex
	var failed []error
	work := errgroup.Group{}
	work.SetLimit(parallel)
	for _, j := range running {
		work.Go(func() error {
			if err := e.suspend(ctx, j, label, c.period.to, now); err != nil && !errors.Is(err, errChanged) {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
			return nil
		})
	}
	_ = work.Wait() // what failed is in failed
	return first(failed, "suspending Jobs")
}

// mayNow is asked right before anything is suspended: an uninstall takes the switch away, and resumes everything.
func (e *Engine) mayNow(ctx context.Context) error {
	may, err := e.o.MaySuspend(ctx)
	if err != nil {
		return fmt.Errorf("whether anything may be suspended is not known: %w", err)
	}
	if !may {
		return errors.New("nothing may be suspended here: the binding of the policy kubenergy-hold is not there")
	}
	return nil
}

func maySuspend(j *batchv1.Job, label string) bool {
	return kube.NotSuspended(j) == "" && j.Annotations[kube.AnnotationBudgetReleased] != label && j.DeletionTimestamp == nil
}

func (e *Engine) suspend(ctx context.Context, j *batchv1.Job, label string, until, now time.Time) error {
	err := e.patch(ctx, j, types.JSONPatchType, kube.BudgetSuspendPatch(j, label, until))
	if err != nil {
		return err
	}
	e.metrics.suspended.WithLabelValues(j.Namespace).Inc()
	e.sayJob(ctx, j, eventSuspended, "suspended, its pods are deleted: the energy budget "+label+" is used up", now)
	return nil
}

// sayJob tells the owner of a Job. That is a courtesy: what goes wrong is not tried again.
func (e *Engine) sayJob(ctx context.Context, j *batchv1.Job, reason, text string, now time.Time) {
	about := v1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID}
	if err := e.event(ctx, about, reason, digest(string(j.UID), j.ResourceVersion, reason), text, now); err != nil {
		e.o.Log.Debug("telling of a Job", "error", err)
	}
}

// resumeAll resumes what no budget suspends any longer.
func (e *Engine) resumeAll(ctx context.Context, s *suspensions, shared []*budgetCase, own []*allowance, enabled bool) {
	now := e.o.Now()
	var failed []error
	for _, j := range s.jobs {
		label := j.Labels[kube.LabelBudgetSuspended]
		kept := slices.ContainsFunc(shared, func(c *budgetCase) bool {
			owners := kube.JobOwners(j)
			return c.budget.Namespace == j.Namespace && kube.BudgetLabel(c.budget.Name) == label && c.suspends(now) && owners.InScope(&c.budget.Spec.Scope)
		}) || slices.ContainsFunc(own, func(a *allowance) bool {
			return a.object.GetUID() == j.UID && a.label == label && a.suspends()
		})
		if kept && enabled {
			continue
		}
		if err := e.patch(ctx, j, types.JSONPatchType, kube.BudgetResumePatch(j, false)); err != nil {
			if !errors.Is(err, errChanged) {
				failed = append(failed, err)
			}
			continue
		}
		e.sayJob(ctx, j, eventResumed, "resumed: the energy budget "+label+" no longer keeps it", now)
	}
	if err := first(failed, "resuming Jobs"); err != nil {
		e.o.Log.Warn("a budget's Jobs are not resumed yet: trying again", "error", err)
	}
}
