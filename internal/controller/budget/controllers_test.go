package budget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// times returns the number of iterations: few by default, many for long test runs.
func times(few, many int) int {
	if os.Getenv("KUBENERGY_LONG") != "" {
		return many
	}
	return few
}

// meeting is a single-use barrier: callers wait until the given number of them has arrived.
type meeting struct {
	mu      sync.Mutex
	missing int
	all     chan struct{}
}

func newMeeting(n int) *meeting { return &meeting{missing: n, all: make(chan struct{})} }

func (m *meeting) wait() {
	m.mu.Lock()
	if m.missing--; m.missing == 0 {
		close(m.all)
	}
	m.mu.Unlock()
	<-m.all
}

// TestTheServerHasConflicts verifies that the fake API server rejects writes with an outdated resource version,
// like a real one. Other tests rely on this.
func TestTheServerHasConflicts(t *testing.T) {
	w := newWorld(t, newBudget(nil), newJob("j", nil))
	first, second := w.budget("month"), w.budget("month")
	first.Status.Percent, second.Status.Percent = 1, 2
	if err := w.api.Status().Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := w.api.Status().Update(t.Context(), second); !apierrors.IsConflict(err) {
		t.Errorf("status update with an outdated version: %v", err)
	}
	e := w.engine("a", nil, time.Now)
	seen := w.job("j")
	marks := map[string]string{"kubenergy.io/a": "b"}
	if err := e.patch(t.Context(), seen, mergePatch, kube.MarkPatch(seen, marks, nil, false)); err != nil {
		t.Fatal(err)
	}
	if err := e.patch(t.Context(), seen, mergePatch,
		kube.MarkPatch(seen, marks, nil, true)); !apierrors.IsConflict(err) || !errors.Is(err, errChanged) {
		t.Errorf("merge patch with an outdated version: %v", err)
	}
	if err := e.patch(t.Context(), seen, jsonPatch, kube.BudgetSuspendPatch(seen, "month", time.Time{})); err == nil ||
		w.suspended("j") {
		t.Error("a JSON patch with an outdated version suspended the Job")
	}
}

// TestTwoControllers runs two controllers that read the same versions of a budget and of a Job with its own budget
// and write them at the same time.
func TestTwoControllers(t *testing.T) {
	for round := range times(4, 50) {
		clock := &clockAt{monday.Add(time.Hour)}
		own := newJob("own", func(j *batchv1.Job) {
			j.Annotations = map[string]string{
				v1alpha1.AnnotationBudgetKWh: "0.5", v1alpha1.AnnotationBudgetAction: "notify",
			}
		})
		w := newWorld(t, newBudget(nil, do(v1alpha1.DeedNotify, v1alpha1.DeedEvent, v1alpha1.DeedSuspend,
			v1alpha1.DeedLog)...), newJob("j", nil), own)
		w.used(monday, monday.Add(time.Minute), oneKWh, "team", "Job/j")
		w.used(monday, monday.Add(time.Minute), oneKWh, "team", "Job/own")
		statuses, patches := newMeeting(2), newMeeting(2)
		var engines []*Engine
		for i := range 2 {
			var wroteStatus, patched atomic.Bool
			api := interceptor.NewClient(w.api, interceptor.Funcs{
				SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
					opts ...client.SubResourceUpdateOption,
				) error {
					if !wroteStatus.Swap(true) {
						statuses.wait()
					}
					return c.SubResource(sub).Update(ctx, o, opts...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
					opts ...client.PatchOption,
				) error {
					if o.GetName() == "own" && !patched.Swap(true) {
						patches.wait()
					}
					return c.Patch(ctx, o, p, opts...)
				},
			})
			e := w.engine(fmt.Sprint("engine-", i), api, clock.now)
			engines = append(engines, e)
		}
		look := func() {
			var running sync.WaitGroup
			for _, e := range engines {
				running.Go(func() { e.sweepAndWork(t.Context()) })
			}
			running.Wait()
		}
		for range 2 {
			look()
		}
		// Long enough for each controller to take over unfinished actions of the other one.
		for range 2 {
			clock.at = clock.at.Add(takeOver + time.Second)
			look()
		}
		w.wantOnce(t, round, engines)
	}
}

func (w *world) wantOnce(t *testing.T, round int, engines []*Engine) {
	t.Helper()
	keys := map[string]int{}
	for _, m := range w.posts {
		keys[m.Budget+m.Workload]++
	}
	if len(w.posts) != 2 || keys["month"] != 1 || keys["OwnJob/own"] != 1 {
		t.Errorf("round %d: unexpected webhook calls %v", round, keys)
	}
	events := w.events()
	if n := len(events["EnergyBudget/month"]); n != 1 {
		t.Errorf("round %d: got %d events of the budget, want 1", round, n)
	}
	if got := events["Job/own"]; count(got, eventExceeded) != 1 || count(got, eventSuspended) != 1 {
		t.Errorf("round %d: unexpected events of the Job: %v", round, got)
	}
	if n := strings.Count(w.logged(), "Energy budget has reached"); n != 1 {
		t.Errorf("round %d: got %d log messages, want 1", round, n)
	}
	suspended, acted := 0.0, 0.0
	for _, e := range engines {
		suspended += testutil.ToFloat64(e.metrics.suspended.WithLabelValues("team"))
		acted += testutil.ToFloat64(e.metrics.exceeded.WithLabelValues("team", "", "Suspend"))
	}
	if suspended != 2 || acted != 1 || !w.suspended("j") || !w.suspended("own") {
		t.Errorf("round %d: got %v suspended Jobs and %v actions", round, suspended, acted)
	}
	for _, a := range w.budget("month").Status.Actions {
		if a.Done == nil || a.Attempts != 1 {
			t.Errorf("round %d: %+v", round, a)
		}
	}
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// TestControllerDies stops a controller at each call of the API server or the webhook after the claim. Another
// controller must complete the remaining actions, and each action must have a single effect.
func TestControllerDies(t *testing.T) {
	errDead := errors.New("the controller has stopped")
	deeds := do(v1alpha1.DeedNotify, v1alpha1.DeedEvent, v1alpha1.DeedSuspend, v1alpha1.DeedLabel)
	for calls := range 12 {
		clock := &clockAt{monday.Add(time.Hour)}
		own := newJob("own", func(j *batchv1.Job) {
			j.Annotations = map[string]string{
				v1alpha1.AnnotationBudgetKWh: "0.5", v1alpha1.AnnotationBudgetAction: "notify",
			}
		})
		w := newWorld(t, newBudget(nil, deeds...), newJob("j", nil), own)
		w.used(monday, monday.Add(time.Minute), oneKWh, "team", "Job/j")
		w.used(monday, monday.Add(time.Minute), oneKWh, "team", "Job/own")
		var left atomic.Int32
		left.Store(int32(calls) + 1) // the first write is the claim
		alive := func() error {
			if left.Add(-1) < 0 {
				return errDead
			}
			return nil
		}
		api := interceptor.NewClient(w.api, interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
				opts ...client.SubResourceUpdateOption,
			) error {
				if err := alive(); err != nil {
					return err
				}
				return c.SubResource(sub).Update(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption,
			) error {
				if err := alive(); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, opts...)
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := alive(); err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
		})
		first, second := w.engine("first", api, clock.now), w.engine("second", nil, clock.now)
		first.o.deliver = func(ctx context.Context, to string, m *Message) error {
			if err := alive(); err != nil {
				return err
			}
			return w.post(ctx, to, m)
		}
		first.sweepAndWork(t.Context())
		reported := w.posted()
		clock.at = clock.at.Add(takeOver / 3)
		second.sweepAndWork(t.Context()) // recently started actions belong to the first controller
		began := w.budget("month").Status.Actions
		if reported == w.posted() && len(began) > 0 && began[0].By == "first" && began[0].Done == nil &&
			began[0].Attempts > 1 {
			t.Errorf("%d calls: an action was taken over too early", calls)
		}
		for range 2 {
			clock.at = clock.at.Add(takeOver + time.Second)
			second.sweepAndWork(t.Context())
		}
		for _, a := range w.budget("month").Status.Actions {
			if a.Done == nil {
				t.Errorf("%d calls: action is not done: %+v", calls, a)
			}
		}
		keys := map[string]bool{}
		for _, m := range w.posts {
			keys[m.Key] = true
		}
		// A controller that stops between the response of the webhook and recording the result has sent the
		// notification, so the receiver gets the same key again.
		if len(keys) != 2 || len(w.posts) > 3 {
			t.Errorf("%d calls: got %d webhook calls with %d keys", calls, len(w.posts), len(keys))
		}
		events := w.events()
		if len(events["EnergyBudget/month"]) != 1 || count(events["Job/own"], eventExceeded) != 1 ||
			!w.suspended("j") || !w.suspended("own") ||
			w.job("j").Labels[v1alpha1.AnnotationBudgetExceeded] != "true" {
			t.Errorf("%d calls: %v, %+v", calls, events, w.job("j"))
		}
	}
}

// TestAnyOrder runs the sweeps of three controllers in random order while usage grows and periods end.
//
//test:norace
func TestAnyOrder(t *testing.T) {
	for seed := range times(3, 50) {
		r := rand.New(rand.NewPCG(uint64(seed), 7)) //nolint:gosec // a test's choice
		clock := &clockAt{monday.Add(time.Hour)}
		actions := append(do(v1alpha1.DeedNotify, v1alpha1.DeedEvent),
			v1alpha1.BudgetAction{At: 50, Do: v1alpha1.DeedNotify})
		w := newWorld(t, newBudget(func(b *v1alpha1.EnergyBudget) { b.Spec.Period.Type = v1alpha1.PeriodDay },
			actions...))
		engines := []*Engine{
			w.engine("a", nil, clock.now), w.engine("b", nil, clock.now), w.engine("c", nil, clock.now),
		}
		for range 40 {
			from := clock.at
			clock.at = clock.at.Add(time.Duration(r.IntN(40)+1) * time.Minute)
			if r.IntN(2) == 0 {
				w.used(from, from.Add(time.Minute), oneKWh/10, "team", "Job/j")
			}
			var running sync.WaitGroup
			for _, e := range engines {
				if r.IntN(3) > 0 {
					running.Go(func() { e.sweepAndWork(t.Context()) })
				}
			}
			running.Wait()
		}
		var seen []string
		for _, m := range w.posts {
			what := fmt.Sprint(m.PeriodStart.Format(time.DateOnly), " ", m.At)
			if slices.Contains(seen, what) {
				t.Errorf("seed %d: duplicate notification: %s", seed, what)
			}
			seen = append(seen, what)
		}
		if len(seen) < 2 {
			t.Errorf("seed %d: got webhook calls %v", seed, seen)
		}
	}
}
