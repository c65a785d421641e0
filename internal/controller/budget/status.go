package budget

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/humanize"
)

const (
	takeOver    = 30 * time.Second // any controller retries an action that is not done after this time
	maxAttempts = 10
	// Webhooks may be unavailable for hours: the backoff doubles up to one hour, and retries last for more than a
	// day.
	longestRetry    = time.Hour
	noticeAttempts  = 32
	longestDoubling = 7
	// Minimum interval between status updates with only numeric changes.
	writeEvery = 30 * time.Second
	// Maximum age of a status that holds new work, because consumers ignore it after a few minutes.
	refreshEvery = 2 * time.Minute
	maxMessage   = 256
)

// Reasons of the condition WithinBudget.
const (
	reasonWithin   = "Within"
	reasonWarned   = "Warned"
	reasonExceeded = "Exceeded"
	reasonUnknown  = "UseUnknown"
	reasonInvalid  = "Invalid"
)

// endOfTime represents the end of a lifetime period.
var endOfTime = metav1.NewTime(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))

// updateStatus updates the status of a budget. It returns the actions claimed by this controller as indices into
// the actions of the status.
func (e *Engine) updateStatus(ctx context.Context, c *budgetCase, now time.Time, suspended int32) (due []int) {
	status := e.statusOf(c, suspended)
	due = claim(c, status, now, e.o.Identity, e.tasks.isBusy)
	status.ClosedUntil = closedUntil(status, c.period)
	if e.publish(ctx, c, status, now, len(due) > 0) {
		return due
	}
	if len(due) > 0 {
		e.Booked() // sweep again soon, because the conflict may be with our own results
	}
	return nil
}

// publish updates the status if it has changed significantly or if must is set. It reports whether the update
// succeeded. Otherwise the budget retains its previous status, because another controller may have updated it.
func (e *Engine) publish(ctx context.Context, c *budgetCase, status *v1alpha1.EnergyBudgetStatus, now time.Time,
	must bool,
) bool {
	b, before := c.budget, c.budget.Status.DeepCopy()
	setCondition(c, status, now)
	b.Status = *status
	if !must && !worthWriting(b, before) {
		return false
	}
	err := e.write(ctx, b)
	if err == nil {
		return true
	}
	if b.Status = *before; !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		e.o.Log.Warn("Failed to update EnergyBudget status, retrying", "namespace", b.Namespace, "budget", b.Name,
			"error", err)
	}
	return false
}

// statusOf returns the status before actions are claimed. Unknown values are not changed.
func (e *Engine) statusOf(c *budgetCase, suspended int32) *v1alpha1.EnergyBudgetStatus {
	b := c.budget
	s := b.Status.DeepCopy()
	s.ObservedGeneration, s.Suspended = b.Generation, suspended
	if !c.period.isOf(s) || c.err != nil {
		*s = v1alpha1.EnergyBudgetStatus{
			ObservedGeneration: b.Generation, Suspended: suspended, Conditions: s.Conditions,
		}
		s.PeriodStart, s.PeriodEnd = stamp(c.period.from), stamp(c.period.to)
	}
	if c.use == nil {
		return s
	}
	s.AsOf = stamp(c.use.asOf)
	s.Percent = tenths(c.use.percent(&b.Spec.Limits))
	c.use.writeTo(s, &b.Spec.Limits)
	s.Exhausted = s.Percent >= whole
	return s
}

func stamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

// claim adds the actions to be carried out now to a status and returns them as indices into its actions. The
// function busy reports whether this process is already carrying out an action.
func claim(c *budgetCase, s *v1alpha1.EnergyBudgetStatus, now time.Time, by string,
	busy func(key string) bool,
) (due []int) {
	spec := &c.budget.Spec
	forget(c, s)
	if c.err != nil || !c.period.holds(now) {
		return nil
	}
	for i := range spec.Actions {
		a := &spec.Actions[i]
		at := slices.IndexFunc(s.Actions, func(t v1alpha1.BudgetActionTaken) bool { return is(a, &t) })
		switch {
		case at >= 0 && s.Actions[at].Done == nil:
			t := &s.Actions[at]
			if !retry(t.Do, int(t.Attempts), now.Sub(t.Time.Time)) || busy(c.key(t)) {
				continue
			}
			t.Time, t.By, t.Attempts = *stamp(now), by, t.Attempts+1
		case at < 0 && c.use != nil && s.Percent >= float64(threshold(a)):
			s.Actions = append(s.Actions, v1alpha1.BudgetActionTaken{
				At: threshold(a), Do: a.Do, Webhook: webhookID(a.Webhook), Percent: s.Percent,
				Generation: c.budget.Generation, Time: *stamp(now), By: by, Attempts: 1,
			})
			at = len(s.Actions) - 1
		default:
			continue
		}
		if s.Actions[at].Do == v1alpha1.DeedHoldNewWork {
			s.Actions[at].Done = stamp(now) // complete as soon as the status is updated
		}
		due = append(due, at)
	}
	return due
}

// forget removes actions that are no longer in the spec, and actions with a threshold that is no longer reached
// after the spec has changed. The latter are carried out again at the new limit.
func forget(c *budgetCase, s *v1alpha1.EnergyBudgetStatus) {
	s.Actions = slices.DeleteFunc(s.Actions, func(t v1alpha1.BudgetActionTaken) bool {
		asked := slices.ContainsFunc(c.budget.Spec.Actions, func(a v1alpha1.BudgetAction) bool { return is(&a, &t) })
		return !asked || c.use != nil && s.Percent < float64(t.At) && t.Generation != c.budget.Generation
	})
}

// threshold returns the percentage at which an action is carried out. Annotate and Label mark a budget as exceeded,
// so their threshold is at least 100 %.
func threshold(a *v1alpha1.BudgetAction) int32 {
	at := cmp.Or(a.At, whole)
	if a.Do == v1alpha1.DeedAnnotate || a.Do == v1alpha1.DeedLabel {
		at = max(at, whole)
	}
	return at
}

func is(a *v1alpha1.BudgetAction, t *v1alpha1.BudgetActionTaken) bool {
	return threshold(a) == t.At && a.Do == t.Do && t.Webhook == webhookID(a.Webhook)
}

// webhookID returns an identifier of a webhook without its URL, because a status may be readable by more users than
// the spec.
func webhookID(of string) string {
	if of == "" || strings.HasPrefix(of, webhookSecret) {
		return of
	}
	sum := sha256.Sum256([]byte(of))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// retry reports whether to retry an action after the given number of attempts and the time since the last one.
func retry(do v1alpha1.BudgetDeed, attempts int, ago time.Duration) bool {
	if do != v1alpha1.DeedNotify {
		return attempts < maxAttempts && ago >= takeOver
	}
	return attempts < noticeAttempts && ago >= min(takeOver<<min(max(attempts-1, 0), longestDoubling), longestRetry)
}

// inForce reports whether a lasting action has been started.
func inForce(s *v1alpha1.EnergyBudgetStatus, do v1alpha1.BudgetDeed) bool {
	return slices.ContainsFunc(s.Actions, func(t v1alpha1.BudgetActionTaken) bool { return t.Do == do })
}

func closedUntil(s *v1alpha1.EnergyBudgetStatus, p period) *metav1.Time {
	switch {
	case !inForce(s, v1alpha1.DeedHoldNewWork):
		return nil
	case p.to.IsZero():
		return endOfTime.DeepCopy()
	}
	return stamp(p.to)
}

func setCondition(c *budgetCase, s *v1alpha1.EnergyBudgetStatus, now time.Time) {
	status, reason, message := metav1.ConditionTrue, reasonWithin, "no limit has been reached"
	switch {
	case c.err != nil:
		status, reason = metav1.ConditionUnknown, reasonInvalid
		message = "the budget is ignored: " + c.err.Error()
	case s.AsOf == nil || c.use == nil && now.Sub(s.AsOf.Time) > refreshEvery:
		status, reason, message = metav1.ConditionUnknown, reasonUnknown, "the usage is unknown"
	case s.Exhausted:
		status, reason, message = metav1.ConditionFalse, reasonExceeded, "a limit has been reached"
	case len(s.Actions) > 0:
		reason, message = reasonWarned, "no limit has been reached, but a warning threshold has"
	}
	if c.use != nil {
		if unsaid := c.use.unsaid(&c.budget.Spec.Limits); len(unsaid) > 0 {
			message += "; " + strings.Join(unsaid, "; ")
		}
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionWithinBudget, Status: status, Reason: reason, Message: bounded(message),
		ObservedGeneration: c.budget.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}

func bounded(text string) string { return humanize.Truncated(text, maxMessage) }

// worthWriting reports whether to update the status: immediately for significant changes, otherwise after an
// interval.
func worthWriting(b *v1alpha1.EnergyBudget, before *v1alpha1.EnergyBudgetStatus) bool {
	s := &b.Status
	if !equality.Semantic.DeepEqual(withoutNumbers(before), withoutNumbers(s)) {
		return true
	}
	if s.AsOf == nil {
		return false
	}
	age := refreshEvery
	if before.AsOf != nil {
		age = s.AsOf.Sub(before.AsOf.Time)
	}
	changed := before.Percent != s.Percent || before.Suspended != s.Suspended ||
		!equality.Semantic.DeepEqual(before.Used, s.Used)
	return changed && age >= writeEvery || s.ClosedUntil != nil && age >= refreshEvery
}

func withoutNumbers(s *v1alpha1.EnergyBudgetStatus) *v1alpha1.EnergyBudgetStatus {
	s = s.DeepCopy()
	s.AsOf, s.Used, s.Percent, s.Suspended = nil, nil, 0, 0
	s.EstimatedShare, s.UnchartedShare, s.UnpricedShare = 0, 0, 0
	for i := range s.Conditions {
		s.Conditions[i].Message = "" // it contains fractions
	}
	return s
}

func (e *Engine) write(ctx context.Context, b *v1alpha1.EnergyBudget) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return e.o.Client.Status().Update(ctx, b)
}

// noteResults records the results of actions, by key, in the status. It handles concurrent updates of the status by
// other controllers.
func (e *Engine) noteResults(ctx context.Context, c *budgetCase, results map[string]error) {
	b, now := c.budget, stamp(e.o.Now())
	err := e.onLatest(ctx, b, false, func(latest client.Object) error {
		o := latest.(*v1alpha1.EnergyBudget)
		for i := range o.Status.Actions {
			t := &o.Status.Actions[i]
			failed, ours := results[c.key(t)]
			if !ours || t.By != e.o.Identity || t.Done != nil {
				continue
			}
			if t.Message = ""; failed != nil {
				t.Message = bounded(failed.Error())
			} else {
				t.Done = now
			}
		}
		return e.write(ctx, o)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		e.o.Log.Warn("Failed to record the results of budget actions, which may be repeated", "namespace", b.Namespace,
			"budget", b.Name, "error", err)
	}
}
