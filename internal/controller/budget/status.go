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
)

const (
	takeOver    = 30 * time.Second // after which any controller tries again what was begun and is not done
	maxAttempts = 10
	// Webhooks are away for longer than we are: the time doubles up to an hour, and in all it is a day and more.
	longestRetry    = time.Hour
	noticeAttempts  = 32
	longestDoubling = 7
	// How often a status is written that says the same but for its numbers.
	writeEvery = 30 * time.Second
	// How old a status may get that holds new work: its readers believe it for a few minutes.
	refreshEvery = 2 * time.Minute
	maxMessage   = 256
)

// The reasons of the condition WithinBudget.
const (
	reasonWithin   = "Within"
	reasonWarned   = "Warned"
	reasonExceeded = "Exceeded"
	reasonUnknown  = "UseUnknown"
	reasonInvalid  = "Invalid"
)

// endOfTime stands for the end of a lifetime.
var endOfTime = metav1.NewTime(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))

// updateStatus brings the status of a budget up to date. It returns the actions that this controller has claimed, as
// places in the status's list.
func (e *Engine) updateStatus(ctx context.Context, c *budgetCase, now time.Time, suspended int32) (due []int) {
	status := e.statusOf(c, suspended)
	due = claim(c, status, now, e.o.Identity, e.tasks.isBusy)
	status.ClosedUntil = closedUntil(status, c.period)
	if e.publish(ctx, c, status, now, len(due) > 0) {
		return due
	}
	if len(due) > 0 {
		e.Booked() // sweep again soon: it may have been our own note of results that came between
	}
	return nil
}

// publish writes a status if it says something new or must be written, and reports whether it was written. If not, the
// budget keeps the status that it had: what another controller has written by now is not known yet.
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
		e.o.Log.Warn("writing the status of an EnergyBudget: trying again", "namespace", b.Namespace, "budget", b.Name,
			"error", err)
	}
	return false
}

// statusOf returns the status before any action is claimed. What is not known stays as it was.
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

// claim writes into a status which actions are to be done now, and returns them as places in the status's list. busy
// reports whether this process carries out an action already.
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
		if at >= 0 {
			s.Actions[at].Webhook = webhookID(a.Webhook) // no URL of before stays
		}
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
			s.Actions[at].Done = stamp(now) // that it is written is all there is to do
		}
		due = append(due, at)
	}
	return due
}

// forget drops actions that the spec no longer has, and those that a raised limit has undone: they are done again at
// the new limit.
func forget(c *budgetCase, s *v1alpha1.EnergyBudgetStatus) {
	s.Actions = slices.DeleteFunc(s.Actions, func(t v1alpha1.BudgetActionTaken) bool {
		asked := slices.ContainsFunc(c.budget.Spec.Actions, func(a v1alpha1.BudgetAction) bool { return is(&a, &t) })
		return !asked || c.use != nil && s.Percent < float64(t.At) && t.Generation != c.budget.Generation
	})
}

// threshold is the percentage at which an action is done. Annotate and Label write that all is used, so they wait for
// 100 %, whatever the spec says.
func threshold(a *v1alpha1.BudgetAction) int32 {
	at := cmp.Or(a.At, whole)
	if a.Do == v1alpha1.DeedAnnotate || a.Do == v1alpha1.DeedLabel {
		at = max(at, whole)
	}
	return at
}

func is(a *v1alpha1.BudgetAction, t *v1alpha1.BudgetActionTaken) bool {
	return threshold(a) == t.At && a.Do == t.Do &&
		(t.Webhook == webhookID(a.Webhook) || t.Webhook == a.Webhook) // as it was written before
}

// webhookID names a webhook without telling its URL: readers of a status may be more than those of its budget.
func webhookID(of string) string {
	if of == "" || strings.HasPrefix(of, webhookSecret) {
		return of
	}
	sum := sha256.Sum256([]byte(of))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

// retry reports whether an action is tried once more, after so many attempts of which the last was so long ago.
func retry(do v1alpha1.BudgetDeed, attempts int, ago time.Duration) bool {
	if do != v1alpha1.DeedNotify {
		return attempts < maxAttempts && ago >= takeOver
	}
	return attempts < noticeAttempts && ago >= min(takeOver<<min(max(attempts-1, 0), longestDoubling), longestRetry)
}

// inForce reports whether a lasting action was begun.
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
	status, reason, message := metav1.ConditionTrue, reasonWithin, "no limit is used up"
	switch {
	case c.err != nil:
		status, reason = metav1.ConditionUnknown, reasonInvalid
		message = "the budget counts for nothing: " + c.err.Error()
	case s.AsOf == nil || c.use == nil && now.Sub(s.AsOf.Time) > refreshEvery:
		status, reason, message = metav1.ConditionUnknown, reasonUnknown, "what was used is not known"
	case s.Exhausted:
		status, reason, message = metav1.ConditionFalse, reasonExceeded, "a limit is used up"
	case len(s.Actions) > 0:
		reason, message = reasonWarned, "no limit is used up, but there was a warning"
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

func bounded(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len("…")], "") + "…"
}

// worthWriting reports whether a status is written: what others wait for is written at once, new numbers now and then.
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
		s.Conditions[i].Message = "" // it has shares in it
	}
	return s
}

func (e *Engine) write(ctx context.Context, b *v1alpha1.EnergyBudget) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return e.o.Client.Status().Update(ctx, b)
}

// noteResults writes into the status what became of actions, by key: that they are done, or why not. Another controller
// may have written the status since.
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
		e.o.Log.Warn("noting what was done about an EnergyBudget: it may be done again", "namespace", b.Namespace,
			"budget", b.Name, "error", err)
	}
}
