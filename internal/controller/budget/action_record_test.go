package budget

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

const begunLength = len("0123456789:1234567890.32 ")

// TestFormerLimitsAreForgotten verifies that each of many limits causes a single notification and that the
// annotation does not grow.
//
//test:norace
func TestFormerLimitsAreForgotten(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	w := newWorld(t, newJob("j", annotated(map[string]string{v1alpha1.AnnotationBudgetAction: "notify"})))
	e := w.engine("a", nil, clock.now)
	w.used(monday, monday.Add(time.Minute), oneKWh, "team", "Job/j")
	limits := maxRecord + 4
	for i := range limits {
		j := w.job("j")
		j.Annotations[v1alpha1.AnnotationBudgetKWh] = fmt.Sprintf("0.1%03d", i)
		if err := w.api.Update(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			e.sweepAndWork(t.Context())
			clock.at = clock.at.Add(time.Minute)
		}
		if text := w.job("j").Annotations[v1alpha1.AnnotationBudgetActions]; len(text) > 2*begunLength ||
			!strings.Contains(text, ":d") {
			t.Fatalf("limit %d: %q", i, text)
		}
	}
	if w.posted() != limits {
		t.Errorf("got %d notifications for %d limits", w.posted(), limits)
	}
}

// TestMoreThanCanBeRemembered verifies that actions that do not fit into the annotation are skipped and reported
// once, and that suspending takes precedence.
//
//test:norace
func TestMoreThanCanBeRemembered(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	w := newWorld(t, newJob("j", nil))
	for i := range 7 {
		var actions []v1alpha1.BudgetAction
		for at := range int32(16) {
			actions = append(actions, v1alpha1.BudgetAction{At: 60 + at, Do: v1alpha1.DeedNotify})
		}
		if i == 6 {
			actions[15] = v1alpha1.BudgetAction{At: 100, Do: v1alpha1.DeedSuspend}
		}
		b := newBudget(func(b *v1alpha1.EnergyBudget) {
			b.Name, b.UID = fmt.Sprint("each-", i), ""
			b.Spec.Per, b.Spec.Period.Type, b.Spec.Limits.EnergyKWh = v1alpha1.PerWorkload, v1alpha1.PeriodLifetime,
				new(2.0)
		}, actions...)
		if i == 6 {
			b.Spec.Limits.EnergyKWh = new(0.5)
		}
		if err := w.api.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	e := w.engine("a", nil, clock.now)
	w.used(monday, monday.Add(time.Minute), 3*oneKWh, "team", "Job/j")
	for range 12 {
		e.sweepAndWork(t.Context())
		clock.at = clock.at.Add(time.Minute)
		if text := w.job("j").Annotations[v1alpha1.AnnotationBudgetActions]; len(text) > maxRecordText {
			t.Fatalf("got %d bytes", len(text))
		}
	}
	keys := map[string]int{}
	for _, m := range w.posts {
		keys[m.Key]++
	}
	if len(keys) != len(w.posts) || len(keys) < maxRecordText/begunLength-1 || len(keys) >= 7*16-1 {
		t.Errorf("got %d notifications for %d actions", len(w.posts), len(keys))
	}
	if n := count(w.events()["Job/j"], eventTooMany); n != 1 || strings.Count(w.logged(), "too many budgets") != 1 {
		t.Errorf("got %d events, log output: %s", n, w.logged())
	}
}

// TestAttemptsThatGrowStillFit verifies that the maximum length of unfinished actions is reserved.
func TestAttemptsThatGrowStillFit(t *testing.T) {
	a := &allowance{account: account{object: newJob("j", nil)}}
	for at := range int32(maxRecord) {
		a.actions = append(a.actions, v1alpha1.BudgetAction{At: 1 + at, Do: v1alpha1.DeedNotify})
	}
	all := record{}
	for i := range a.actions {
		for _, x := range a.fitting(all, a.actions[i:i+1]) {
			all[a.key(&x)] = begun{at: monday.Unix(), attempts: 9}
		}
	}
	for key, b := range all {
		b.attempts = noticeAttempts
		all[key] = b
	}
	if n := len(all.String()); n > maxRecordText || n < maxRecordText-begunLength {
		t.Errorf("got %d bytes", n)
	}
}

func TestSuspendingFitsFirst(t *testing.T) {
	a := &allowance{account: account{object: newJob("j", nil)}, actions: []v1alpha1.BudgetAction{
		{At: 100, Do: v1alpha1.DeedLog}, {At: 100, Do: v1alpha1.DeedSuspend},
	}}
	all := record{}
	for i := range (maxRecordText - begunLength) / doneLength {
		all[fmt.Sprintf("%010d", i)] = begun{done: true}
	}
	due := a.fitting(all, a.actions)
	if len(due) != 1 || due[0].Do != v1alpha1.DeedSuspend {
		t.Errorf("%+v", due)
	}
	if due := a.fitting(record{}, a.actions); len(due) != 2 {
		t.Errorf("%+v", due)
	}
}
