package budget

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// TestSlowActionsDelayNoOther verifies that the Jobs of a budget are suspended in the next sweep while slow patches
// and events of another budget are pending. Actions that take longer than takeOver must still be carried out once.
func TestSlowActionsDelayNoOther(t *testing.T) {
	const pods, slow = 100, 2 * time.Second // about one minute in total
	synctest.Test(t, func(t *testing.T) {
		marks := newBudget(func(b *v1alpha1.EnergyBudget) {
			b.Name, b.UID, b.Spec.Period.Type = "marks", "marks", v1alpha1.PeriodLifetime
		},
			do(v1alpha1.DeedLabel, v1alpha1.DeedEvent)...)
		suspends := newBudget(func(b *v1alpha1.EnergyBudget) {
			b.Namespace, b.Spec.Period.Type = "others",
				v1alpha1.PeriodLifetime
		}, do(v1alpha1.DeedSuspend)...)
		job := newJob("hungry", nil)
		job.Namespace = "others"
		w := newWorld(t, marks, suspends, job)
		for i := range pods {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("p", i)),
			}}
			if err := w.api.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		marked, said := map[string]int{}, 0
		sleep := func(ctx context.Context) error {
			select {
			case <-time.After(slow):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		api := interceptor.NewClient(w.api, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption,
			) error {
				if o.GetNamespace() == "team" {
					if err := sleep(ctx); err != nil {
						return err
					}
					mu.Lock()
					marked[o.GetName()]++
					mu.Unlock()
				}
				return c.Patch(ctx, o, p, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if _, ok := o.(*eventsv1.Event); ok && o.GetNamespace() == "team" {
					if err := sleep(ctx); err != nil {
						return err
					}
					mu.Lock()
					said++
					mu.Unlock()
				}
				return c.Create(ctx, o, opts...)
			},
		})
		start := time.Now()
		w.used(start.Add(-time.Hour), start, 2*oneKWh, "team", "Deployment/shop")
		w.used(start.Add(-time.Hour), start, oneKWh/2, "others", "Job/hungry")
		ctx, cancel := context.WithCancel(t.Context())
		e := w.engine("a", api, nil)
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		bubble.Advance(6 * time.Second)
		w.used(start, start.Add(time.Second), oneKWh, "others", "Job/hungry")
		bubble.Advance(every + time.Second)
		if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil || !*job.Spec.Suspend {
			t.Error("the Job waited for the actions of another budget", err)
		}
		bubble.Advance(2 * time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(marked) != pods || said != 1 {
			t.Errorf("got %d marked pods and %d events", len(marked), said)
		}
		for name, n := range marked {
			if n != 1 {
				t.Errorf("pod %s was marked %d times", name, n)
			}
		}
		for _, a := range w.budget("marks").Status.Actions {
			if a.Done == nil || a.Attempts != 1 {
				t.Errorf("%+v", a)
			}
		}
		p := &v1.Pod{}
		if err := w.api.Get(t.Context(), types.NamespacedName{Namespace: "team", Name: "p7"}, p); err != nil ||
			p.Labels[v1alpha1.AnnotationBudgetExceeded] != "true" {
			t.Error(p.Labels, err)
		}
	})
}

// TestTasksAreBounded verifies that tasks that do not fit are dropped.
func TestTasksAreBounded(t *testing.T) {
	t.Cleanup(panics.Reset)
	e := newWorld(t).engine("a", nil, time.Now)
	for range maxTasks + 5 {
		e.tasks.add(telling, &task{keys: []string{"k"}, do: func(context.Context) {}})
	}
	if len(e.tasks.waiting[telling]) != maxTasks || e.tasks.busy["k"] != maxTasks {
		t.Error(len(e.tasks.waiting[telling]), e.tasks.busy)
	}
	for range maxTasks {
		e.runTask(t.Context(), <-e.tasks.waiting[telling])
	}
	if e.tasks.isBusy("k") || len(e.tasks.busy) > 0 {
		t.Error(e.tasks.busy)
	}
	e.tasks.add(telling, &task{keys: []string{"k"}, do: func(context.Context) { panic("!") }})
	if e.runTask(t.Context(), <-e.tasks.waiting[telling]); e.tasks.isBusy("k") {
		t.Error("the action is busy after a panic")
	}
	done, failed := inParallel(e.o.Log, 2, []string{"a", "b"}, func(s string) error {
		if s == "a" {
			panic("planted")
		}
		return nil
	})
	if len(done) != 1 || len(failed) != 1 || panics.Note("budget") != 3 {
		t.Errorf("got done %v and failed %v", done, failed)
	}
}

// TestManyCallsThatHang verifies that an API server that hangs does not block the sweeps, for any number of
// objects.
func TestManyCallsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		done, failed := inParallel(slog.New(slog.DiscardHandler), parallel, make([]int, 10_000), func(int) error {
			ctx, cancel := context.WithTimeout(t.Context(), callTime)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(began); took > actTime+2*callTime || len(done) > 0 || len(failed) != 10_000 {
			t.Errorf("got %d failures after %v", len(failed), took)
		}
		if err := summary("resuming", failed, errChanged); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
