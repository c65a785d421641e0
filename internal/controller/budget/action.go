package budget

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientretry "k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// Reasons of events. EnergyBudgetExceeded is also used by Compute Gardener.
const (
	eventExceeded  = "EnergyBudgetExceeded"
	eventWarning   = "EnergyBudgetWarning"
	eventSuspended = "EnergyBudgetSuspended"
	eventResumed   = "EnergyBudgetResumed"
	eventTooMany   = "TooManyEnergyBudgets"
	reporter       = "kubenergy-controller"
)

// duty is a claimed action to be carried out by a task.
type duty struct {
	key  string // the same for all attempts and controllers; used in event names and webhooks
	lane lane
	do   func(context.Context) error
}

// notification is the content of an action for a budget or for a workload with its own budget.
type notification struct {
	about   v1.ObjectReference
	webhook string
	attrs   []any  // of the log message
	text    string // of the event
	message *Message
}

// notification returns the notification of an action at a threshold, with the usage from a status.
func (a *account) notification(key string, at int32, webhook string, s *v1alpha1.EnergyBudgetStatus, percent float64,
	now time.Time, attrs ...any,
) *notification {
	namespace, workload := a.object.GetNamespace(), a.workload()
	if workload != "" {
		attrs = append(attrs, "workload", workload)
	}
	return &notification{
		about: reference(a.object), webhook: webhook,
		attrs: append([]any{"at", at, "namespace", namespace, "budget", a.name, "percent", percent}, attrs...),
		message: &Message{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: messageKind, Key: key, Time: now.UTC(),
			Namespace: namespace, Budget: a.name, Workload: workload, At: at, Percent: percent, Exhausted: s.Exhausted,
			PeriodStart: s.PeriodStart, PeriodEnd: s.PeriodEnd, Limits: a.limits, Used: s.Used,
			EstimatedShare: s.EstimatedShare,
		},
	}
}

// dutyOf returns the duty of an action that only sends a notification.
func (e *Engine) dutyOf(deed v1alpha1.BudgetDeed, n *notification) duty {
	d := duty{key: n.message.Key, lane: telling, do: func(context.Context) error { return nil }}
	switch deed {
	case v1alpha1.DeedLog:
		d.do = func(context.Context) error {
			e.o.Log.Warn("Energy budget has reached the threshold of an action", n.attrs...)
			return nil
		}
	case v1alpha1.DeedEvent:
		reason := eventExceeded
		if n.message.At < whole {
			reason = eventWarning
		}
		d.do = func(ctx context.Context) error { return e.event(ctx, n.about, reason, d.key, n.text) }
	case v1alpha1.DeedNotify:
		d.lane, d.do = posting, func(ctx context.Context) error { return e.o.deliver(ctx, n.webhook, n.message) }
	}
	return d
}

// carryOut adds duties to the lanes. Each webhook is a separate task. After a task has finished, note is called
// with the results of its duties by key.
func (e *Engine) carryOut(about v1.ObjectReference, duties []duty, note func(context.Context, map[string]error)) {
	var byLane [lanes][]duty
	for _, d := range duties {
		byLane[d.lane] = append(byLane[d.lane], d)
	}
	for l, all := range byLane {
		together := max(len(all), 1)
		if lane(l) == posting {
			together = 1
		}
		for some := range slices.Chunk(all, together) {
			x := &task{namespace: about.Namespace, do: func(ctx context.Context) {
				results := map[string]error{}
				for _, d := range some {
					err := d.do(ctx)
					if results[d.key] = err; err != nil {
						e.o.Log.Warn("Failed to carry out a budget action, retrying", "kind", about.Kind, "namespace",
							about.Namespace, "name", about.Name, "error", err)
					}
				}
				note(ctx, results)
			}}
			for _, d := range some {
				x.keys = append(x.keys, d.key)
			}
			e.tasks.add(lane(l), x)
		}
	}
}

// act carries out the actions that were just claimed in the status of a budget. It suspends Jobs immediately and
// adds all other actions to the lanes, so that budgets do not wait for the actions of others.
func (e *Engine) act(ctx context.Context, c *budgetCase, due []int, enabled bool) {
	now := e.o.Now()
	asked := slices.ContainsFunc(due, func(i int) bool { return c.budget.Status.Actions[i].Do == v1alpha1.DeedSuspend })
	var suspendErr error
	if c.suspends(now) && (enabled || asked) {
		if suspendErr = e.suspendFor(ctx, c); suspendErr != nil {
			e.o.Log.Warn("Failed to suspend Jobs of a budget, retrying", "namespace", c.budget.Namespace, "budget",
				c.budget.Name, "error", suspendErr)
		}
	}
	var duties []duty
	for _, i := range due {
		t := &c.budget.Status.Actions[i]
		if t.Attempts == 1 {
			e.metrics.took(c.budget.Namespace, "", t.Do, t.At)
		}
		switch t.Do {
		case v1alpha1.DeedHoldNewWork: // effective through the status
		case v1alpha1.DeedAnnotate, v1alpha1.DeedLabel:
			mark := func(ctx context.Context) error { return e.mark(ctx, c, t) }
			duties = append(duties, duty{c.key(t), marking, mark})
		case v1alpha1.DeedSuspend:
			duties = append(duties, duty{c.key(t), telling, func(context.Context) error { return suspendErr }})
		default:
			duties = append(duties, e.dutyOf(t.Do, c.notification(t, now)))
		}
	}
	e.carryOut(reference(c.budget), duties, func(ctx context.Context, results map[string]error) {
		e.noteResults(ctx, c, results)
	})
}

// key returns the key of an action of a budget in its current period.
func (c *budgetCase) key(t *v1alpha1.BudgetActionTaken) string {
	return digest(string(c.budget.UID), c.period.from.UTC().Format(time.RFC3339), strconv.FormatInt(t.Generation, 10),
		actionText(t.At, t.Do), t.Webhook)
}

func actionText(at int32, do v1alpha1.BudgetDeed) string { return fmt.Sprintf("%d/%s", at, do) }

func digest(parts ...string) string {
	const kept = 10
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:kept])
}

func (c *budgetCase) notification(t *v1alpha1.BudgetActionTaken, now time.Time) *notification {
	b := c.budget
	of := "its lifetime"
	if !c.period.to.IsZero() {
		of = "the period until " + c.period.to.UTC().Format(time.RFC3339)
	}
	amount := ""
	if c.use != nil { // nil for a retry without ledger data
		amount = ", " + c.use.used(&b.Spec.Limits)
	}
	n := c.account.notification(c.key(t), t.At, c.webhook(t), &b.Status, t.Percent, now, "periodStart", c.period.from,
		"periodEnd", c.period.to)
	n.text = fmt.Sprintf("%v%% of the budget for %s is used%s (action %s at %d%%)", t.Percent, of, amount, t.Do, t.At)
	return n
}

// webhook returns the webhook of an action.
func (c *budgetCase) webhook(t *v1alpha1.BudgetActionTaken) string {
	for i := range c.budget.Spec.Actions {
		if a := &c.budget.Spec.Actions[i]; is(a, t) {
			return a.Webhook
		}
	}
	return t.Webhook
}

// reference returns a reference to an object for events.
func reference(o client.Object) v1.ObjectReference {
	ref := v1.ObjectReference{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
	switch o.(type) {
	case *batchv1.Job:
		ref.APIVersion, ref.Kind = "batch/v1", "Job"
	case *v1.Pod:
		ref.APIVersion, ref.Kind = "v1", "Pod"
	default:
		ref.APIVersion, ref.Kind = v1alpha1.GroupVersion.String(), "EnergyBudget"
	}
	return ref
}

// event creates an event exactly once: its name is derived from the key, so a second attempt fails with
// AlreadyExists. The event recorders of client-go include the time in the name and would create another event after
// a crash and for each controller.
func (e *Engine) event(ctx context.Context, about v1.ObjectReference, reason, key, text string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	const longest = 200 // of at most 253 characters
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
		EventTime:           metav1.NewMicroTime(e.o.Now()),
		ReportingController: reporter, ReportingInstance: bounded(e.o.Identity),
		Action: "Budgeting", Reason: reason, Regarding: about, Note: text, Type: kind,
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating an event: %w", err)
	}
	return nil
}

// errChanged is returned if an object has changed since it was read. The next sweep reads it again.
var errChanged = errors.New("the object has changed")

// patch applies a patch to the observed version of an object. It returns nil if the object no longer exists.
func (e *Engine) patch(ctx context.Context, o client.Object, kind types.PatchType, patch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	target, current := o.DeepCopyObject().(client.Object), o.DeepCopyObject().(client.Object)
	err := e.o.Client.Patch(ctx, target, client.RawPatch(kind, patch))
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	// A failed test operation of a JSON patch cannot be distinguished from a rejection by an admission policy.
	if errGet := e.o.Direct.Get(ctx, client.ObjectKeyFromObject(o), current); apierrors.IsNotFound(errGet) ||
		errGet == nil && current.GetResourceVersion() != o.GetResourceVersion() {
		return fmt.Errorf("%s/%s: %w: %w", o.GetNamespace(), o.GetName(), errChanged, err)
	}
	return fmt.Errorf("%s/%s: %w", o.GetNamespace(), o.GetName(), err)
}

// patchLatest applies a patch to the latest version of an object, tolerating concurrent changes. It tries the given
// version first unless changed is true. The function patch returns nil if no change is needed.
func (e *Engine) patchLatest(ctx context.Context, o client.Object, changed bool,
	patch func(client.Object) []byte,
) error {
	return e.onLatest(ctx, o, changed, func(latest client.Object) error {
		body := patch(latest)
		if body == nil {
			return nil
		}
		return e.patch(ctx, latest, types.MergePatchType, body)
	})
}

// onLatest calls change with a copy of an object. It reads the object again after a conflict, or if changed is
// true. It returns nil if the object no longer exists.
func (e *Engine) onLatest(ctx context.Context, o client.Object, changed bool, change func(client.Object) error) error {
	again := func(err error) bool { return errors.Is(err, errChanged) || apierrors.IsConflict(err) }
	return kube.Retry(clientretry.DefaultBackoff, again, func() error {
		latest := o.DeepCopyObject().(client.Object)
		if changed { // decode into an empty object, because decoding does not clear absent fields
			latest = reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
			if err := e.o.Direct.Get(ctx, client.ObjectKeyFromObject(o), latest); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		changed = true // read it again for the next attempt
		if latest.GetUID() != o.GetUID() {
			return nil
		}
		return change(latest)
	})
}
