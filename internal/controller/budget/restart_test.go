package budget

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// TestRestartResumesNothing verifies that suspended Jobs with their own budget remain suspended while the caches of
// a new controller are not synced.
func TestRestartResumesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		object   client.Object // the object that defines the budget of the Job
		takeAway func(*world) error
	}{
		"annotation": {newJob("j", annotated(map[string]string{
			v1alpha1.AnnotationBudgetKWh: "0.5", v1alpha1.AnnotationBudgetAction: "suspend",
		})), func(w *world) error {
			j := w.job("j")
			delete(j.Annotations, v1alpha1.AnnotationBudgetKWh)
			return w.api.Update(context.Background(), j)
		}},
		"per workload": {newBudget(func(b *v1alpha1.EnergyBudget) {
			b.Spec.Per, b.Spec.Period.Type = v1alpha1.PerWorkload, v1alpha1.PeriodLifetime
		}, do(v1alpha1.DeedSuspend)...), func(w *world) error {
			return w.api.Delete(context.Background(), w.budget("month"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &clockAt{monday.Add(time.Hour)}
			w := newWorld(t, tc.object)
			if err := w.api.Create(t.Context(), newJob("j", nil)); client.IgnoreAlreadyExists(err) != nil {
				t.Fatal(err)
			}
			first := w.engine("first", nil, clock.now)
			w.used(monday, monday.Add(time.Minute), 2*oneKWh, "team", "Job/j")
			first.sweepAndWork(t.Context()) // the first controller then stops
			second, ready := w.engine("second", nil, clock.now), false
			second.o.Ready = func() bool { return ready }
			want := func(when string, suspended bool) {
				t.Helper()
				second.sweepAndWork(t.Context())
				if w.suspended("j") != suspended {
					t.Fatalf("%s: suspended is %v", when, !suspended)
				}
			}
			want("before any event", true)
			// The suspended Job remains suspended because its budget is in force.
			ready = true
			want("after the caches have synced", true)
			ready = false
			if err := tc.takeAway(w); err != nil {
				t.Fatal(err)
			}
			want("budget removed, caches not synced", true)
			ready = true
			want("budget removed", false)
		})
	}
}

// TestStatusesWaitForAllJobs verifies that a budget per workload does not report zero usage before the caches are
// synced.
func TestStatusesWaitForAllJobs(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	w := newWorld(t, newBudget(func(b *v1alpha1.EnergyBudget) {
		b.Spec.Per, b.Spec.Period.Type = v1alpha1.PerWorkload, v1alpha1.PeriodLifetime
	}))
	e := w.engine("a", nil, clock.now)
	e.o.Ready = func() bool { return false }
	e.sweepAndWork(t.Context())
	if s := w.budget("month").Status; s.AsOf != nil {
		t.Errorf("%+v", s)
	}
}

// TestResumedByWhatIsWrittenOnJobs verifies that a Job is resumed at the end of its period even if most
// dependencies are unavailable, and not earlier.
func TestResumedByWhatIsWrittenOnJobs(t *testing.T) {
	errAway := errors.New("unavailable")
	end := monday.AddDate(0, 1, 0).Truncate(24*time.Hour).AddDate(0, 0, 1-monday.Day())
	for name, tc := range map[string]struct {
		change  func(*Engine, *world)
		extends bool
		fails   bool // the Job is not resumed
	}{
		"without the ledger": {change: func(e *Engine, _ *world) { e.o.Ledger = broken{} }},
		"nor the policy binding": {change: func(e *Engine, _ *world) {
			e.o.Ledger, e.o.MaySuspend = broken{}, func(context.Context) error { return errAway }
		}},
		"nor namespaces": {change: func(e *Engine, w *world) {
			e.o.Ledger, e.o.Client = broken{}, without[*v1.NamespaceList](w)
		}},
		"nor budgets": {change: func(e *Engine, w *world) {
			e.o.Ledger, e.o.Client = broken{}, without[*v1alpha1.EnergyBudgetList](w)
		}},
		"the period is longer now": {change: func(e *Engine, _ *world) {
			e.o.MaySuspend = func(context.Context) error { return errAway }
		}, extends: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &clockAt{monday.Add(time.Hour)}
			from, to := metav1.NewTime(end.AddDate(0, -1, 0)), metav1.NewTime(end)
			w := newWorld(t, newJob("j", nil), newBudget(func(b *v1alpha1.EnergyBudget) {
				b.Spec.Period = v1alpha1.BudgetPeriod{Type: v1alpha1.PeriodFixed, From: &from, To: &to}
			}, do(v1alpha1.DeedSuspend)...))
			w.used(monday, monday.Add(time.Minute), 2*oneKWh, "team", "Job/j")
			w.engine("first", nil, clock.now).sweepAndWork(t.Context()) // the first controller then stops
			if !w.suspended("j") {
				t.Fatal("the Job was not suspended")
			}
			if tc.extends {
				later := metav1.NewTime(end.AddDate(0, 1, 0))
				w.update(func(b *v1alpha1.EnergyBudget) { b.Spec.Period.To = &later })
			}
			second := w.engine("second", nil, clock.now)
			tc.change(second, w)
			clock.at = end.Add(-time.Second)
			second.sweepAndWork(t.Context())
			if !w.suspended("j") {
				t.Error("the Job was resumed before the end of its period")
			}
			clock.at = end.AddDate(0, 0, 3)
			second.sweepAndWork(t.Context())
			if w.suspended("j") != tc.fails {
				t.Errorf("three days after the period: suspended is %v", w.suspended("j"))
			}
		})
	}
}

// without returns a client that fails to list objects of type L.
func without[L client.ObjectList](w *world) client.Client {
	return interceptor.NewClient(w.api, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, opts ...client.ListOption,
	) error {
		if _, ok := list.(L); ok {
			return errors.New("rejected by the API server")
		}
		return c.List(ctx, list, opts...)
	}})
}

// hung is a ledger that blocks until the context is done.
type hung struct{ Ledger }

func (hung) Query(ctx context.Context, _ *ledger.Query) (*ledger.Answer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestLedgerThatHangs verifies that Jobs are resumed on time even if all queries of the ledger hang.
func TestLedgerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newJob("j", func(j *batchv1.Job) {
			j.Spec.Suspend, j.Labels = new(true), map[string]string{v1alpha1.LabelBudgetSuspended: "month"}
			j.Annotations = map[string]string{v1alpha1.AnnotationBudgetSuspendedTill: time.Now().Add(
				-time.Hour).UTC().Format(time.RFC3339)}
		}))
		for i := range 20 { // each with its own query
			b := newBudget(func(b *v1alpha1.EnergyBudget) {
				from, to := metav1.NewTime(time.Now().Add(-time.Duration(i+1)*time.Hour)),
					metav1.NewTime(time.Now().Add(time.Hour))
				b.Name, b.UID, b.Spec.Period = fmt.Sprint("b", i), "",
					v1alpha1.BudgetPeriod{Type: v1alpha1.PeriodFixed, From: &from, To: &to}
			})
			if err := w.api.Create(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		e := w.engine("a", nil, nil)
		e.o.Ledger = hung{}
		began := time.Now()
		e.sweep(t.Context())
		if took := time.Since(began); took > 2*time.Minute || w.suspended("j") {
			t.Errorf("the sweep took %v, suspended is %v", took, w.suspended("j"))
		}
	})
}
