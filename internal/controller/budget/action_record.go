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
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// record contains the actions of a workload by key, as stored in its annotation: the time and number of attempts,
// or that the action is done. Package cached retains this annotation.
type record map[string]begun

type begun struct {
	done     bool
	at       int64 // Unix seconds
	attempts int
}

const (
	// maxRecordText is the maximum length of the annotation, because a cluster has many workloads.
	maxRecordText = 1000
	doneLength    = keyLength + len(":d ")
	keyLength     = 10
	maxRecord     = maxRecordText / doneLength
)

// dropFormer removes actions that are not in any current budget of the object, or that were for other limits.
func (t record) dropFormer(a *allowance) {
	asked := map[string]bool{}
	for _, s := range a.siblings {
		for i := range s.actions {
			asked[s.key(&s.actions[i])] = true
		}
	}
	maps.DeleteFunc(t, func(key string, _ begun) bool { return !asked[key] })
}

// readRecord parses a space-separated list of key:d and key:time.attempts. Invalid entries are ignored.
func readRecord(text string) record {
	all := record{}
	for part := range strings.FieldsSeq(text) {
		key, state, ok := strings.Cut(part, ":")
		if !ok || len(all) >= maxRecord {
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

func (t record) String() string {
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

// key returns the key of an action in the annotation.
func (a *allowance) key(x *v1alpha1.BudgetAction) string {
	return digest(string(a.object.GetUID()), a.name, a.id, actionText(threshold(x), x.Do), x.Webhook)[:keyLength]
}

// noticeKey returns the key of an action for events, webhooks and tasks, where it must be unique among all
// workloads.
func (a *allowance) noticeKey(key string) string { return digest(string(a.object.GetUID()), key) }

// keep starts the due actions of a workload. Other budgets of the same workload are processed in the next sweep,
// because each patch requires the observed resource version.
func (e *Engine) keep(ctx context.Context, a *allowance, now time.Time, maySuspend bool) {
	if a.use == nil || a.object.GetDeletionTimestamp() != nil {
		return
	}
	all := readRecord(a.object.GetAnnotations()[v1alpha1.AnnotationBudgetActions])
	due := e.due(a, all, now, maySuspend)
	if len(due) > 0 {
		all.dropFormer(a)
		if due = a.fitting(all, due); len(due) == 0 {
			e.sayFull(a)
		}
	}
	switch {
	case len(due) > 0:
		e.begin(ctx, a, all, due, now)
	case maySuspend && a.suspends() && suspendable(a):
		if err := e.o.MaySuspend(ctx); err == nil {
			err = e.suspend(ctx, a.job, a.label, time.Time{})
			if e.complain(a, err); err == nil {
				e.sayJobs([]*batchv1.Job{a.job}, eventSuspended, suspendedText(a.label))
			}
		}
	}
}

// due returns the actions to be started or retried now.
func (e *Engine) due(a *allowance, all record, now time.Time, maySuspend bool) (due []v1alpha1.BudgetAction) {
	percent := a.percent()
	for _, x := range a.actions {
		if percent < float64(threshold(&x)) || x.Do == v1alpha1.DeedSuspend && !maySuspend {
			continue
		}
		key := a.key(&x)
		b, before := all[key]
		again := !b.done && retry(x.Do, b.attempts, now.Sub(time.Unix(b.at, 0))) && !e.tasks.isBusy(a.noticeKey(key))
		if !before || again {
			due = append(due, x)
		}
	}
	return due
}

// fitting returns the due actions that fit into the annotation. Other actions cannot be recorded and would be
// repeated forever. Suspending takes precedence.
func (a *allowance) fitting(all record, due []v1alpha1.BudgetAction) (some []v1alpha1.BudgetAction) {
	longest := begun{at: endOfTime.Unix(), attempts: noticeAttempts}
	counted := maps.Clone(all)
	for key, b := range counted {
		if !b.done {
			counted[key] = longest // its maximum length
		}
	}
	slices.SortStableFunc(due, func(x, y v1alpha1.BudgetAction) int { return cmp.Compare(rank(x.Do), rank(y.Do)) })
	for _, x := range due {
		key := a.key(&x)
		if _, before := counted[key]; !before {
			counted[key] = longest
			if !notifies(x.Do) {
				counted[key] = begun{done: true}
			}
			if len(counted.String()) > maxRecordText {
				delete(counted, key)
				continue
			}
		}
		some = append(some, x)
	}
	return some
}

// rank returns the order of an action: 0 for suspending, otherwise 1.
func rank(do v1alpha1.BudgetDeed) int {
	if do == v1alpha1.DeedSuspend {
		return 0
	}
	return 1
}

// notifies reports whether an action is a notification, which is sent after the action has been recorded. All other
// actions are carried out by the same patch that records them.
func notifies(do v1alpha1.BudgetDeed) bool {
	return do == v1alpha1.DeedLog || do == v1alpha1.DeedEvent || do == v1alpha1.DeedNotify
}

const (
	maxFull   = 10_000
	fullAgain = 24 * time.Hour
)

// sayFull reports at most once a day that the actions of a workload do not fit into its annotation.
func (e *Engine) sayFull(a *allowance) {
	uid := a.object.GetUID()
	if _, said := e.full.Get(uid); said {
		return
	}
	e.full.Add(uid, nil, fullAgain)
	const text = "too many actions of energy budgets for this object, skipping the remaining ones: reduce the " +
		"number of budgets or actions"
	e.o.Log.Warn("Workload has too many budgets, skipping some of their actions", "namespace",
		a.object.GetNamespace(), "workload", a.workload())
	e.tasks.add(telling, &task{do: func(ctx context.Context) {
		e.complain(a, e.event(ctx, reference(a.object), eventTooMany, a.noticeKey(eventTooMany), text))
	}})
}

func suspendable(a *allowance) bool { return a.job != nil && maySuspend(a.job, a.label) }

func (e *Engine) complain(a *allowance, err error) {
	if err != nil && !errors.Is(err, errChanged) {
		e.o.Log.Warn("Failed to carry out a workload's budget action, retrying", "namespace", a.object.GetNamespace(),
			"workload", a.workload(), "error", err)
	}
}

// begin records the due actions. The same patch carries out the actions that change the object. Notifications are
// added to the lanes.
func (e *Engine) begin(ctx context.Context, a *allowance, all record, due []v1alpha1.BudgetAction, now time.Time) {
	annotations, labels, suspend := map[string]string{}, map[string]string{}, false
	var fresh []v1alpha1.BudgetAction
	var duties []duty
	keys := map[string]string{} // keys of the annotation by keys of the duties
	for _, x := range due {
		key := a.key(&x)
		before := all[key]
		if before.attempts == 0 {
			fresh = append(fresh, x)
		}
		if notifies(x.Do) {
			all[key] = begun{at: now.Unix(), attempts: before.attempts + 1}
			keys[a.noticeKey(key)] = key
			duties = append(duties, e.dutyOf(x.Do, a.notification(&x, now)))
			continue
		}
		all[key] = begun{done: true}
		if x.Do != v1alpha1.DeedSuspend {
			moreAnnotations, moreLabels := exceeded(x.Do, a.use, a.limits, a.gardener)
			maps.Copy(annotations, moreAnnotations)
			maps.Copy(labels, moreLabels)
		} else if suspendable(a) && e.o.MaySuspend(ctx) == nil { // otherwise it is suspended by a later sweep
			labels[v1alpha1.LabelBudgetSuspended], suspend = a.label, true
		}
	}
	annotations[v1alpha1.AnnotationBudgetActions] = all.String()
	if err := e.patch(ctx, a.object, types.MergePatchType,
		kube.MarkPatch(a.object, annotations, labels, suspend)); err != nil {
		e.complain(a, err)
		return
	}
	for _, x := range fresh {
		e.metrics.took(a.object.GetNamespace(), a.kind(), x.Do, threshold(&x))
	}
	if suspend {
		e.metrics.suspended.WithLabelValues(a.object.GetNamespace()).Inc()
		e.sayJobs([]*batchv1.Job{a.job}, eventSuspended, suspendedText(a.label))
	}
	e.carryOut(reference(a.object), duties, func(ctx context.Context, results map[string]error) {
		var done []string
		for key, failed := range results {
			if failed == nil {
				done = append(done, keys[key])
			}
		}
		e.complain(a, e.noteDone(ctx, a, done))
	})
}

func (a *allowance) notification(x *v1alpha1.BudgetAction, now time.Time) *notification {
	s := v1alpha1.EnergyBudgetStatus{Exhausted: a.percent() >= whole}
	a.use.writeTo(&s, a.limits)
	n := a.account.notification(a.noticeKey(a.key(x)), threshold(x), x.Webhook, &s, a.percent(), now)
	n.text = fmt.Sprintf("%v%% of its energy budget %s is used: %s", tenths(a.percent()), a.name, a.use.used(a.limits))
	return n
}

// noteDone marks actions as done in the annotation of the latest version of the object.
func (e *Engine) noteDone(ctx context.Context, a *allowance, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	return e.patchLatest(ctx, a.object, true, func(o client.Object) []byte {
		all := readRecord(o.GetAnnotations()[v1alpha1.AnnotationBudgetActions])
		for _, key := range keys {
			if hasKey(all, key) { // otherwise its limit has changed
				all[key] = begun{done: true}
			}
		}
		return kube.MarkPatch(o, map[string]string{v1alpha1.AnnotationBudgetActions: all.String()}, nil, false)
	})
}

// perWorkload updates the statuses of budgets per workload with the usage of the workload with the highest
// utilization.
func (e *Engine) perWorkload(ctx context.Context, s *scene) {
	now := s.now
	most := map[types.NamespacedName]*allowance{}
	for _, a := range s.own {
		key := types.NamespacedName{Namespace: a.object.GetNamespace(), Name: a.name}
		if a.use != nil && (most[key] == nil || most[key].percent() < a.percent()) {
			most[key] = a
		}
	}
	for _, b := range s.each {
		c := &budgetCase{account: accountOf(b), budget: b}
		if a := most[client.ObjectKeyFromObject(b)]; a != nil {
			c.use = a.use
		}
		status := e.statusOf(c, s.marks.of(b))
		if c.use == nil {
			status.AsOf = stamp(now) // there is no workload in its scope
		}
		e.publish(ctx, c, status, now, false)
	}
}

// fullest returns the allowances with the highest known utilization.
func fullest(all []*allowance, most int) []*allowance {
	known := slices.DeleteFunc(slices.Clone(all), func(a *allowance) bool { return a.use == nil })
	slices.SortFunc(known, func(a, b *allowance) int {
		return cmp.Or(cmp.Compare(b.percent(), a.percent()), cmp.Compare(a.object.GetUID(), b.object.GetUID()),
			cmp.Compare(a.name, b.name))
	})
	return known[:min(most, len(known))]
}
