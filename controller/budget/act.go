package budget

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// The reasons of our events. The first is Compute Gardener's.
const (
	eventExceeded  = "EnergyBudgetExceeded"
	eventWarning   = "EnergyBudgetWarning"
	eventSuspended = "EnergyBudgetSuspended"
	eventResumed   = "EnergyBudgetResumed"
	eventTooMany   = "TooManyEnergyBudgets"
	reporter       = "kubenergy-controller"
)

// act suspends what is to be suspended, and leaves to others whatever else was claimed in the status that was just
// written: no budget waits for what another one asks for.
func (e *Engine) act(ctx context.Context, c *budgetCase, due []int, enabled bool) {
	now := e.o.Now()
	results := map[action]error{}
	asked := slices.ContainsFunc(due, func(i int) bool { return c.budget.Status.Actions[i].Do == v1alpha1.DeedSuspend })
	var err error
	if c.suspends(now) && (enabled || asked) {
		if err = e.suspendFor(ctx, c, now); err != nil {
			e.o.Log.Warn("suspending Jobs for an EnergyBudget: trying again", "namespace", c.budget.Namespace, "budget",
				c.budget.Name, "error", err)
		}
	}
	c = &budgetCase{budget: c.budget.DeepCopy(), period: c.period, use: c.use} // which nobody changes
	var telling, marking []*v1alpha1.BudgetActionTaken
	for _, i := range due {
		t := &c.budget.Status.Actions[i]
		if t.Attempts == 1 {
			e.metrics.took(c.budget.Namespace, "", t.Do, t.At)
		}
		switch t.Do {
		case v1alpha1.DeedHoldNewWork: // its status says so
		case v1alpha1.DeedNotify:
			e.addNotice(&notice{
				key: keyOf(c.budget, c.period, t), budget: c.budget, action: action{t.At, t.Do, t.Webhook},
				url:     t.Webhook,
				message: messageOf(c, t, now), namespace: c.budget.Namespace,
			})
		case v1alpha1.DeedAnnotate, v1alpha1.DeedLabel:
			marking = append(marking, t)
		case v1alpha1.DeedSuspend:
			results[action{t.At, t.Do, t.Webhook}] = err
			telling = append(telling, t)
		default:
			telling = append(telling, t)
		}
	}
	e.leave(e.telling, c, telling, results)
	e.leave(e.marking, c, marking, map[action]error{})
}

// leave leaves actions of a budget to who does errands. Of some the results are known; they are noted with the others.
func (e *Engine) leave(to errands, c *budgetCase, actions []*v1alpha1.BudgetActionTaken, results map[action]error) {
	if len(actions) == 0 {
		return
	}
	x := &errand{do: func(ctx context.Context) {
		for _, t := range actions {
			a := action{t.At, t.Do, t.Webhook}
			if _, known := results[a]; !known {
				results[a] = e.once(ctx, c, t, e.o.Now())
			}
		}
		e.done(ctx, c.budget, results, e.o.Now())
	}}
	for _, t := range actions {
		x.keys = append(x.keys, keyOf(c.budget, c.period, t))
	}
	e.send(to, x)
}

// once does one thing.
func (e *Engine) once(ctx context.Context, c *budgetCase, t *v1alpha1.BudgetActionTaken, now time.Time) error {
	b := c.budget
	switch t.Do {
	case v1alpha1.DeedLog:
		e.o.Log.Warn("an EnergyBudget is used up, or nearly", "namespace", b.Namespace, "budget", b.Name, "percent",
			t.Percent, "at", t.At,
			"periodStart", c.period.from, "periodEnd", c.period.to)
	case v1alpha1.DeedEvent:
		about := v1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "EnergyBudget", Namespace: b.Namespace, Name: b.Name,
			UID: b.UID,
		}
		return e.event(ctx, about, reasonOf(t.At), keyOf(b, c.period, t), sentence(c, t), now)
	case v1alpha1.DeedAnnotate, v1alpha1.DeedLabel:
		return e.mark(ctx, c, t)
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
	return digest(string(b.UID), p.from.UTC().Format(time.RFC3339), strconv.FormatInt(t.Generation, 10),
		action{t.At, t.Do, t.Webhook}.String(), t.Webhook)
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
	amount := ""
	if c.use != nil { // else it goes on with what was begun, and knows no more than what was noted
		amount = ", " + c.use.used(&c.budget.Spec.Limits)
	}
	return fmt.Sprintf("%v%% of the budget for %s is used%s; %s at %d%%", t.Percent, of, amount, t.Do, t.At)
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
