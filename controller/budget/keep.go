package budget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
)

// taken is what was done about a workload, as its annotation keeps it: by key, when it was begun and how often, or
// that it is done. It is short, since annotations that are longer than a kilobyte do not reach us.
type taken map[string]begun

type begun struct {
	done     bool
	at       int64 // Unix seconds
	attempts int
}

const (
	// maxTakenText is how long the annotation may get: from 1 KiB on it would look empty to us, and all would be done
	// again.
	maxTakenText = 1000
	doneLength   = keyLength + len(":d ")
	begunLength  = keyLength + len(":1234567890.32 ")
	keyLength    = 10
	maxTaken     = maxTakenText / doneLength
)

// length is that of the text, at most, whatever is tried how often.
func (t taken) length() (n int) {
	for _, b := range t {
		n += lengthOf(b.done)
	}
	return n
}

func lengthOf(done bool) int {
	if done {
		return doneLength
	}
	return begunLength
}

// current forgets what no budget of the object asks for any longer, or not with these limits.
func (t taken) current(a *allowance) {
	asked := map[string]bool{}
	for _, s := range a.siblings {
		for i := range s.actions {
			asked[s.key(&s.actions[i])] = true
		}
	}
	maps.DeleteFunc(t, func(key string, _ begun) bool { return !asked[key] })
}

// readTaken reads key:d or key:time.attempts, separated by spaces. What makes no sense counts as not there.
func readTaken(text string) taken {
	all := taken{}
	for part := range strings.FieldsSeq(text) {
		key, state, ok := strings.Cut(part, ":")
		if !ok || len(all) >= maxTaken {
			continue
		}
		if state == "d" {
			all[key] = begun{done: true}
			continue
		}
		at, attempts, _ := strings.Cut(state, ".")
		t, err1 := strconv.ParseInt(at, 10, 64)
		n, err2 := strconv.Atoi(attempts)
		if err1 == nil && err2 == nil && n > 0 {
			all[key] = begun{at: t, attempts: n}
		}
	}
	return all
}

func (t taken) String() string {
	var parts []string
	for _, key := range sortedKeys(t) {
		if b := t[key]; b.done {
			parts = append(parts, key+":d")
		} else {
			parts = append(parts, fmt.Sprintf("%s:%d.%d", key, b.at, b.attempts))
		}
	}
	return strings.Join(parts, " ")
}

// key names an action of an allowance in an annotation.
func (a *allowance) key(x *v1alpha1.BudgetAction) string {
	return digest(string(a.object.GetUID()), a.budget, a.id, action{threshold(x), x.Do, x.Webhook}.String(),
		x.Webhook)[:keyLength]
}

// busyKey names it among everything that is being done.
func (a *allowance) busyKey(key string) string { return digest(string(a.object.GetUID()), key) }

// keep does what is to be done about one workload. Other budgets of the same workload wait for the next look: each
// write is for the version that was seen.
func (e *Engine) keep(ctx context.Context, a *allowance, now time.Time, maySuspend bool) {
	if a.use == nil || a.object.GetDeletionTimestamp() != nil {
		return
	}
	all := readTaken(a.object.GetAnnotations()[kube.AnnotationBudgetActions])
	due := e.due(a, all, now, maySuspend)
	if len(due) > 0 {
		all.current(a)
		if due = a.fitting(all, due); len(due) == 0 {
			e.sayFull(a, now)
		}
	}
	switch {
	case len(due) > 0:
		e.begin(ctx, a, all, due, now)
	case maySuspend && a.job != nil && a.suspends() && suspendable(a):
		if err := e.mayNow(ctx); err == nil {
			err = e.suspend(ctx, a.job, a.label, time.Time{})
			if e.complain(a, err); err == nil {
				e.sayJobs([]*batchv1.Job{a.job}, eventSuspended, saidSuspended(a.label), now)
			}
		}
	}
}

// due returns what is to be done now: for the first time, or once more.
func (e *Engine) due(a *allowance, all taken, now time.Time, maySuspend bool) (due []v1alpha1.BudgetAction) {
	percent := a.percent()
	for _, x := range a.actions {
		if percent < float64(threshold(&x)) || x.Do == v1alpha1.DeedSuspend && !maySuspend {
			continue
		}
		key := a.key(&x)
		b, was := all[key]
		if !was || !b.done && retry(x.Do, b.attempts, now.Sub(time.Unix(b.at, 0))) && !e.busy.with(a.busyKey(key)) {
			due = append(due, x)
		}
	}
	return due
}

// fitting returns what of that which is due can be remembered as well: what could not would be done over and over.
// Suspending comes first.
func (a *allowance) fitting(all taken, due []v1alpha1.BudgetAction) (some []v1alpha1.BudgetAction) {
	length, counted := all.length(), maps.Clone(all)
	slices.SortStableFunc(due, func(x, y v1alpha1.BudgetAction) int {
		return cmp.Compare(urgency(x.Do), urgency(y.Do))
	})
	for _, x := range due {
		key := a.key(&x)
		if _, was := counted[key]; !was {
			more := lengthOf(atOnce(x.Do))
			if length+more > maxTakenText {
				continue
			}
			length += more
			counted[key] = begun{}
		}
		some = append(some, x)
	}
	return some
}

func urgency(do v1alpha1.BudgetDeed) int {
	if do == v1alpha1.DeedSuspend {
		return 0
	}
	return 1
}

// atOnce reports whether something is done by the same write that remembers it.
func atOnce(do v1alpha1.BudgetDeed) bool {
	return do == v1alpha1.DeedAnnotate || do == v1alpha1.DeedLabel || do == v1alpha1.DeedSuspend
}

// sayFull says once of a workload that there is more to do about it than fits.
func (e *Engine) sayFull(a *allowance, now time.Time) {
	if !e.full.first(a.object.GetUID()) {
		return
	}
	const text = "there is more to do about its energy budgets than can be remembered at it: what does not fit is " +
		"not done; " +
		"give it fewer budgets, or fewer actions"
	e.o.Log.Warn("a workload has too many budgets: not all is done that they ask for", "namespace",
		a.object.GetNamespace(), "workload", a.workload())
	e.send(e.telling, &errand{do: func(ctx context.Context) {
		e.complain(a, e.event(ctx, a.reference(), eventTooMany, digest(string(a.object.GetUID()), eventTooMany), text,
			now))
	}})
}

// sayings are what was said of whom, to say it once.
type sayings struct {
	mu   sync.Mutex
	said map[types.UID]bool
}

func (s *sayings) first(id types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said[id] {
		return false
	}
	if s.said == nil {
		s.said = map[types.UID]bool{}
	}
	s.said[id] = true
	return true
}

// keep forgets those that are gone.
func (s *sayings) keep(all []*allowance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.said) == 0 {
		return
	}
	there := map[types.UID]bool{}
	for _, a := range all {
		there[a.object.GetUID()] = true
	}
	maps.DeleteFunc(s.said, func(id types.UID, _ bool) bool { return !there[id] })
}

func suspendable(a *allowance) bool { return a.job != nil && maySuspend(a.job, a.label) }

func (e *Engine) complain(a *allowance, err error) {
	if err != nil && !errors.Is(err, errChanged) {
		e.o.Log.Warn("a workload's budget is not kept to: trying again", "namespace", a.object.GetNamespace(),
			"workload", a.workload(), "error", err)
	}
}

// begin writes down what is to be done and, in the same step, does what is done by writing on the object.
func (e *Engine) begin(ctx context.Context, a *allowance, all taken, due []v1alpha1.BudgetAction, now time.Time) {
	annotations, labels, suspend := map[string]string{}, map[string]string{}, false
	var later []v1alpha1.BudgetAction
	fresh := map[string]bool{}
	for _, x := range due {
		key := a.key(&x)
		before := all[key]
		fresh[key] = before.attempts == 0
		switch x.Do {
		case v1alpha1.DeedAnnotate, v1alpha1.DeedLabel:
			more, tags := exceeded(x.Do, a.use, &a.limits, a.gardener)
			maps.Copy(annotations, more)
			maps.Copy(labels, tags)
			all[key] = begun{done: true}
		case v1alpha1.DeedSuspend:
			if suspendable(a) && e.mayNow(ctx) == nil {
				labels[kube.LabelBudgetSuspended], suspend = a.label, true
			}
			all[key] = begun{done: true} // what runs later is suspended then
		default:
			all[key] = begun{at: now.Unix(), attempts: before.attempts + 1}
			later = append(later, x)
		}
	}
	annotations[kube.AnnotationBudgetActions] = all.String()
	if err := e.patch(ctx, a.object, types.MergePatchType,
		kube.MarkPatch(a.object, annotations, labels, suspend)); err != nil {
		e.complain(a, err)
		return
	}
	for _, x := range due {
		if fresh[a.key(&x)] {
			e.metrics.took(a.object.GetNamespace(), a.kind(), x.Do, threshold(&x))
		}
	}
	if suspend {
		e.metrics.suspended.WithLabelValues(a.object.GetNamespace()).Inc()
		e.sayJobs([]*batchv1.Job{a.job}, eventSuspended, saidSuspended(a.label), now)
	}
	e.tellOwn(a, later, now)
}

// tellOwn leaves to others what is not done by writing on the object.
func (e *Engine) tellOwn(a *allowance, actions []v1alpha1.BudgetAction, now time.Time) {
	var rest []v1alpha1.BudgetAction
	var keys []string
	for _, x := range actions {
		key := a.key(&x)
		if x.Do != v1alpha1.DeedNotify {
			rest, keys = append(rest, x), append(keys, a.busyKey(key))
			continue
		}
		e.addNotice(&notice{
			key: a.busyKey(key), url: x.Webhook, message: a.message(&x, key, now), namespace: a.object.GetNamespace(),
			after: func(ctx context.Context, failed error) {
				if failed == nil {
					e.complain(a, e.doneOwn(ctx, a, []string{key}))
				}
			},
		})
	}
	if len(rest) > 0 {
		e.send(e.telling, &errand{keys: keys, do: func(ctx context.Context) { e.tellOf(ctx, a, rest, now) }})
	}
}

// tellOf does it, and writes down that it is done.
func (e *Engine) tellOf(ctx context.Context, a *allowance, actions []v1alpha1.BudgetAction, now time.Time) {
	text := fmt.Sprintf("%v%% of its energy budget %s is used: %s", tenths(a.percent()), a.budget,
		a.use.used(&a.limits))
	var done []string
	for _, x := range actions {
		key := a.key(&x)
		var err error
		switch x.Do {
		case v1alpha1.DeedLog:
			e.o.Log.Warn("a workload's energy budget is used up, or nearly", "namespace", a.object.GetNamespace(),
				"workload", a.workload(),
				"budget", a.budget, "percent", a.percent(), "at", threshold(&x))
		case v1alpha1.DeedEvent:
			err = e.event(ctx, a.reference(), reasonOf(threshold(&x)), digest(string(a.object.GetUID()), key), text,
				now)
		}
		if err != nil {
			e.complain(a, err)
			continue
		}
		done = append(done, key)
	}
	e.complain(a, e.doneOwn(ctx, a, done))
}

func (a *allowance) reference() v1.ObjectReference {
	ref := v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: a.object.GetNamespace(), Name: a.object.GetName(),
		UID: a.object.GetUID(),
	}
	if a.job != nil {
		ref.APIVersion, ref.Kind = "batch/v1", "Job"
	}
	return ref
}

func (a *allowance) message(x *v1alpha1.BudgetAction, key string, now time.Time) *Message {
	var s v1alpha1.EnergyBudgetStatus
	a.use.tell(&s, &a.limits)
	return &Message{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: messageKind, Key: digest(string(a.object.GetUID()), key),
		Time:      now.UTC(),
		Namespace: a.object.GetNamespace(), Budget: a.budget, Workload: a.workload(), At: threshold(x),
		Percent:   a.percent(),
		Exhausted: a.percent() >= whole, Limits: &a.limits, Used: s.Used, EstimatedShare: s.EstimatedShare,
	}
}

// doneOwn notes on the object, as it is now, what was done.
func (e *Engine) doneOwn(ctx context.Context, a *allowance, keys []string) error {
	const tries = 5
	if len(keys) == 0 {
		return nil
	}
	var err error
	for range tries {
		var current client.Object = &v1.Pod{}
		if a.job != nil {
			current = &batchv1.Job{}
		}
		if err = e.o.Direct.Get(ctx, client.ObjectKeyFromObject(a.object), current); err != nil ||
			current.GetUID() != a.object.GetUID() {
			return client.IgnoreNotFound(err)
		}
		all := readTaken(current.GetAnnotations()[kube.AnnotationBudgetActions])
		for _, key := range keys {
			if _, asked := all[key]; asked { // else its limit is a former one by now
				all[key] = begun{done: true}
			}
		}
		patch := kube.MarkPatch(current, map[string]string{kube.AnnotationBudgetActions: all.String()}, nil, false)
		if err = e.patch(ctx, current, types.MergePatchType, patch); !errors.Is(err, errChanged) {
			return err
		}
	}
	return err
}

// perWorkload brings the statuses of budgets per workload up to date: they tell of the workload that used most.
func (e *Engine) perWorkload(ctx context.Context, s *scene) {
	now := s.now
	most := map[types.NamespacedName]*allowance{}
	for _, a := range s.own {
		key := types.NamespacedName{Namespace: a.object.GetNamespace(), Name: a.budget}
		if a.use != nil && (most[key] == nil || most[key].percent() < a.percent()) {
			most[key] = a
		}
	}
	for _, b := range s.each {
		c := &budgetCase{budget: b}
		if a := most[client.ObjectKeyFromObject(b)]; a != nil {
			c.use = a.use
		}
		before := b.Status.DeepCopy()
		status := e.statusOf(c, s.marks.of(b.Namespace, kube.BudgetLabel(b.Name)))
		if c.use == nil {
			status.AsOf = stamp(now) // there is nothing that could have used anything
		}
		setCondition(c, status, now)
		b.Status = *status
		if !e.worthWriting(b, before) {
			continue
		}
		if err := e.write(ctx, b); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			e.o.Log.Warn("writing the status of an EnergyBudget: trying again", "namespace", b.Namespace, "budget",
				b.Name, "error", err)
		}
	}
}

// fullest returns those that used most of what they may, and of which that is known.
func fullest(all []*allowance, most int) []*allowance {
	known := slices.DeleteFunc(slices.Clone(all), func(a *allowance) bool { return a.use == nil })
	slices.SortFunc(known, func(a, b *allowance) int {
		return cmp.Or(cmp.Compare(b.percent(), a.percent()), cmp.Compare(a.object.GetUID(), b.object.GetUID()),
			cmp.Compare(a.budget, b.budget))
	})
	return known[:min(most, len(known))]
}
