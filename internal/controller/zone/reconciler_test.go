package zone

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// fakeKeeper returns the values that the test sets.
type fakeKeeper struct {
	seeded      *v1alpha1.SignalStatus
	description *v1alpha1.SignalStatus
	trouble     error
	runs        atomic.Int32
	running     atomic.Int32
	panics      bool // in its first run
}

func (k *fakeKeeper) Seed(s *v1alpha1.SignalStatus)                  { k.seeded = s }
func (k *fakeKeeper) Look(time.Time) (*v1alpha1.SignalStatus, error) { return k.description, k.trouble }
func (k *fakeKeeper) Run(ctx context.Context, changed func()) {
	if k.runs.Add(1) == 1 && k.panics {
		panic("a keeper that fails")
	}
	k.running.Add(1)
	changed()
	<-ctx.Done()
	k.running.Add(-1)
}

func signalNow(now time.Time, source string, values ...float64) *v1alpha1.SignalStatus {
	asOf := metav1.NewTime(now)
	return &v1alpha1.SignalStatus{
		Now: values[0], Unit: "gCO2e/kWh", Quality: "measured", Source: source, AsOf: &asOf, Start: metav1.NewTime(now),
		Step: metav1.Duration{Duration: time.Hour}, Values: values,
	}
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func refuseAll(*v1alpha1.GridZone) (keeper, error) { return nil, errors.New("not requested") }

// reconciler returns a Reconciler that uses the keepers of the test.
func reconciler(w *kit.World, carbon, price func(*v1alpha1.GridZone) (keeper, error)) *Reconciler {
	z := New(w.Client, kube.Unsettled, signal.Deps{
		Clock: time.Now, Log: slog.New(slog.DiscardHandler), Metrics: signal.NewMetrics(time.Now),
	})
	z.carbon, z.price = carbon, price
	return z
}

// inZones runs a test with running keepers and a fake clock.
func inZones(t *testing.T, w *kit.World, carbon, price func(*v1alpha1.GridZone) (keeper, error),
	test func(t *testing.T, z *Reconciler),
) {
	synctest.Test(t, func(t *testing.T) {
		z := reconciler(w, carbon, price)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			if err := z.Start(ctx); err != nil {
				t.Error(err)
			}
			close(stopped)
		}()
		test(t, z)
		cancel()
		<-stopped
	})
}

func reconcileZone(t *testing.T, z *Reconciler, name string) time.Duration {
	t.Helper()
	result, err := z.Reconcile(t.Context(), request(name))
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

func TestZoneStatus(t *testing.T) {
	w := kit.NewWorld(t, kit.Zone("home", 1))
	k := &fakeKeeper{}
	builds := 0
	inZones(t, w, func(*v1alpha1.GridZone) (keeper, error) { builds++; return k, nil }, refuseAll,
		func(t *testing.T, z *Reconciler) {
			now := time.Now().UTC().Truncate(time.Second)
			reconcileZone(t, z, "home")
			if n := w.Writes.Load(); n != 0 {
				t.Fatalf("%d writes before the first value", n)
			}
			if event := <-z.changes; event.Object.GetName() != "home" {
				t.Errorf("unexpected event for %q", event.Object.GetName())
			}
			k.description = signalNow(now, "fake", 300, 200, 100)
			reconcileZone(t, z, "home")
			zone := kit.Get(t, w.Client, client.ObjectKey{Name: "home"}, &v1alpha1.GridZone{})
			ready := meta.FindStatusCondition(zone.Status.Conditions, v1alpha1.ConditionReady)
			if zone.Status.Carbon == nil || zone.Status.Carbon.Now != 300 || ready == nil ||
				ready.Reason != reasonFresh ||
				zone.Status.ObservedGeneration != 1 {
				t.Fatalf("unexpected status %+v, ready %+v", zone.Status, ready)
			}
			for range 10 {
				bubble.Advance(zoneLook)
				reconcileZone(t, z, "home")
			}
			if n := w.Writes.Load(); n != 1 {
				t.Errorf("%d writes without a change", n)
			}
			// The status of a source that changes every second is written every 30 s.
			before := w.Writes.Load()
			for i := range 300 {
				bubble.Advance(time.Second)
				k.description = signalNow(now, "fake", float64(i), 200, 100)
				reconcileZone(t, z, "home")
			}
			if n := w.Writes.Load() - before; n < 9 || n > 11 {
				t.Errorf("%d writes in five minutes, want one per 30 s", n)
			}
			if builds != 1 || k.runs.Load() != 1 {
				t.Errorf("unexpected %d keepers and %d runs", builds, k.runs.Load())
			}
			// The signal expires.
			k.description, k.trouble = nil, errors.New("connection refused")
			bubble.Advance(time.Minute)
			reconcileZone(t, z, "home")
			zone = kit.Get(t, w.Client, client.ObjectKey{Name: "home"}, &v1alpha1.GridZone{})
			if ready := meta.FindStatusCondition(zone.Status.Conditions,
				v1alpha1.ConditionReady); ready.Reason != reasonStale || ready.Status != metav1.ConditionFalse ||
				zone.Status.Carbon != nil {
				t.Errorf("unexpected condition %+v, carbon %+v", ready, zone.Status.Carbon)
			}
			// The zone is deleted.
			if err := w.Delete(t.Context(), zone); err != nil {
				t.Fatal(err)
			}
			reconcileZone(t, z, "home")
			synctest.Wait()
			if k.running.Load() != 0 || len(z.known) != 0 {
				t.Errorf("%d keepers run for %d zones after the zone was deleted", k.running.Load(), len(z.known))
			}
		})
}

func TestZoneKeepersAreRenewedWithTheirSpec(t *testing.T) {
	w := kit.NewWorld(t, kit.Zone("home", 1))
	var built []*fakeKeeper
	inZones(t, w, func(*v1alpha1.GridZone) (keeper, error) {
		k := &fakeKeeper{description: signalNow(time.Now(), "fake", 1)}
		built = append(built, k)
		return k, nil
	}, refuseAll, func(t *testing.T, z *Reconciler) {
		edit := func(change func(*v1alpha1.GridZone)) {
			zone := kit.Get(t, w.Client, client.ObjectKey{Name: "home"}, &v1alpha1.GridZone{})
			change(zone)
			zone.Generation++
			if err := w.Update(t.Context(), zone); err != nil {
				t.Fatal(err)
			}
			reconcileZone(t, z, "home")
			synctest.Wait()
			if seen := kit.Get(t, w.Client, client.ObjectKey{Name: "home"},
				&v1alpha1.GridZone{}); seen.Status.ObservedGeneration != seen.Generation {
				t.Errorf("observed generation = %d, want %d", seen.Status.ObservedGeneration, seen.Generation)
			}
		}
		reconcileZone(t, z, "home")
		edit(func(zone *v1alpha1.GridZone) { zone.Spec.PUE = new(1.2) })
		if len(built) != 1 {
			t.Errorf("%d keepers after an unrelated change", len(built))
		}
		edit(func(zone *v1alpha1.GridZone) { zone.Spec.Carbon.Sources[0].Static.Value = 5 })
		edit(func(zone *v1alpha1.GridZone) { zone.Spec.Zone = "FR" })
		if len(built) != 3 {
			t.Fatalf("%d keepers, want 3", len(built))
		}
		for i, k := range built {
			if running := k.running.Load() == 1; running != (i == 2) {
				t.Errorf("keeper %d: running = %v", i, running)
			}
			if k.seeded != nil {
				t.Errorf("keeper %d was seeded with values of another spec", i)
			}
		}
		edit(func(zone *v1alpha1.GridZone) { zone.Spec.Carbon = nil })
		if built[2].running.Load() != 0 {
			t.Error("a keeper runs for a signal that is not requested")
		}
		zone := kit.Get(t, w.Client, client.ObjectKey{Name: "home"}, &v1alpha1.GridZone{})
		if ready := meta.FindStatusCondition(zone.Status.Conditions,
			v1alpha1.ConditionReady); ready.Reason != reasonNoSignal || zone.Status.Carbon != nil {
			t.Errorf("unexpected condition %+v", ready)
		}
	})
}

func TestKeepersThatPanicGoOn(t *testing.T) {
	w := kit.NewWorld(t, kit.Zone("home", 1))
	k := &fakeKeeper{panics: true, description: signalNow(kit.Noon, "fake", 1)}
	inZones(t, w, func(*v1alpha1.GridZone) (keeper, error) { return k, nil }, refuseAll,
		func(t *testing.T, z *Reconciler) {
			reconcileZone(t, z, "home")
			synctest.Wait()
			if k.runs.Load() != 1 || k.running.Load() != 0 {
				t.Errorf("%d runs before the pause, %d still running", k.runs.Load(), k.running.Load())
			}
			bubble.Advance(2 * keeperPause)
			if k.runs.Load() != 2 || k.running.Load() != 1 {
				t.Errorf("%d runs after the pause, %d still running", k.runs.Load(), k.running.Load())
			}
		})
}

func TestNoKeeperStartsAfterTheEnd(t *testing.T) {
	w := kit.NewWorld(t, kit.Zone("home", 1))
	k := &fakeKeeper{description: signalNow(kit.Noon, "fake", 1)}
	z := reconciler(w, func(*v1alpha1.GridZone) (keeper, error) { return k, nil }, refuseAll)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := z.Start(ctx); err != nil {
		t.Fatal(err)
	}
	reconcileZone(t, z, "home")
	z.running.Wait()
	if n := k.runs.Load(); n != 0 {
		t.Errorf("%d keepers started after the end", n)
	}
}

// After a restart, no source is queried for values that the status still contains, unless they belong to another
// spec.
func TestZoneIsSeeded(t *testing.T) {
	for _, observed := range []int64{3, 2} {
		zone := kit.Zone("home", 3)
		zone.Status = v1alpha1.GridZoneStatus{
			ObservedGeneration: observed, Carbon: signalNow(kit.Noon, "electricityMaps", 250),
		}
		w := kit.NewWorld(t, zone)
		k := &fakeKeeper{}
		inZones(t, w, func(*v1alpha1.GridZone) (keeper, error) { return k, nil }, refuseAll,
			func(t *testing.T, z *Reconciler) {
				reconcileZone(t, z, "home")
				if seeded := k.seeded != nil && k.seeded.Now == 250; seeded != (observed == 3) {
					t.Errorf("observed generation %d: seeded = %v", observed, seeded)
				}
				if w.Writes.Load() != 0 {
					t.Error("the status was overwritten before the first value")
				}
				bubble.Advance(zonePatience)
				reconcileZone(t, z, "home")
				if w.Writes.Load() != 1 {
					t.Error("the status was not written after the timeout")
				}
			})
	}
}

func TestZoneWithAnInvalidSpec(t *testing.T) {
	priced := kit.Zone("priced", 1)
	priced.Spec.Price = &v1alpha1.PriceSpec{Currency: "EUR"}
	w := kit.NewWorld(t, kit.Zone("home", 1), priced)
	good := &fakeKeeper{description: signalNow(kit.Noon, "fake", 1)}
	inZones(t, w, func(z *v1alpha1.GridZone) (keeper, error) {
		if z.Name == "home" {
			return nil, errors.New("want a source")
		}
		return good, nil
	}, refuseAll, func(t *testing.T, z *Reconciler) {
		reconcileZone(t, z, "home")
		zone := kit.Get(t, w.Client, client.ObjectKey{Name: "home"}, &v1alpha1.GridZone{})
		if ready := meta.FindStatusCondition(zone.Status.Conditions,
			v1alpha1.ConditionReady); ready.Reason != reasonInvalidSpec || ready.Message != "want a source" {
			t.Errorf("unexpected condition %+v", ready)
		}
		reconcileZone(t, z, "priced")
		zone = kit.Get(t, w.Client, client.ObjectKey{Name: "priced"}, &v1alpha1.GridZone{})
		if ready := meta.FindStatusCondition(zone.Status.Conditions,
			v1alpha1.ConditionReady); ready.Reason != reasonFresh ||
			ready.Message != "known from fake; price: not requested" {
			t.Errorf("unexpected condition %+v", ready)
		}
	})
}

// It is not an error if an object is changed or deleted while its status is written. All other errors are retried.
func TestStatusWritesThatAreRefused(t *testing.T) {
	resource := schema.GroupResource{Group: "kubenergy.io", Resource: "any"}
	for _, tc := range []struct {
		refuse error
		failed bool
	}{
		{apierrors.NewNotFound(resource, "home"), false},
		{apierrors.NewConflict(resource, "home", errors.New("changed")), false},
		{apierrors.NewForbidden(resource, "home", errors.New("no")), true},
	} {
		w := kit.NewWorld(t, kit.Zone("home", 1))
		w.Refuse = tc.refuse
		result, err := reconciler(w, refuseAll, refuseAll).Reconcile(t.Context(), request("home"))
		if failed := err != nil; failed != tc.failed || !failed && result.RequeueAfter == 0 {
			t.Errorf("%v: result %+v, error %v", tc.refuse, result, err)
		}
		if w.Writes.Load() != 1 {
			t.Errorf("unexpected %d attempts to write", w.Writes.Load())
		}
	}
}

func TestSignalChanged(t *testing.T) {
	at := func(change func(*v1alpha1.SignalStatus)) *v1alpha1.SignalStatus {
		s := signalNow(kit.Noon, "fake", 300, 300, 200, 100, 100, 100)
		s.Step = metav1.Duration{Duration: 15 * time.Minute}
		s.Low, s.High = []float64{1, 1, 1, 1, 1, 1}, []float64{9, 9, 9, 9, 9, 9}
		s.ForecastSource = "fake"
		if change != nil {
			change(s)
		}
		return s
	}
	for _, tc := range []struct {
		name string
		is   *v1alpha1.SignalStatus
		want bool
	}{
		{"nothing", at(nil), false},
		{"gone", nil, true},
		{"another value now", at(func(s *v1alpha1.SignalStatus) {
			s.Now, s.Values = 301, []float64{301, 300, 200, 100, 100, 100}
		}), true},
		{
			"another future", at(func(s *v1alpha1.SignalStatus) { s.Values = []float64{300, 300, 200, 100, 100, 99} }),
			true,
		},
		{"another percentile", at(func(s *v1alpha1.SignalStatus) { s.Low = []float64{1, 1, 1, 1, 1, 2} }), true},
		{"percentiles lost", at(func(s *v1alpha1.SignalStatus) { s.Low, s.High = nil, nil }), true},
		{"a step has passed", at(func(s *v1alpha1.SignalStatus) {
			s.Start = metav1.NewTime(kit.Noon.Add(15 * time.Minute))
			s.Values, s.Low, s.High = s.Values[1:], s.Low[1:], s.High[1:]
		}), false},
		{"a step has passed and one was added", at(func(s *v1alpha1.SignalStatus) {
			s.Start = metav1.NewTime(kit.Noon.Add(15 * time.Minute))
			s.Values, s.Low, s.High = append(s.Values[1:], 7), append(s.Low[1:], 1), append(s.High[1:], 9)
		}), false},
		{"an hour was added", at(func(s *v1alpha1.SignalStatus) {
			s.Values, s.Low, s.High = append(s.Values, 1, 2, 3, 4), append(s.Low, 1, 1, 1, 1),
				append(s.High, 9, 9, 9, 9)
		}), true},
		{"a younger timestamp", at(func(s *v1alpha1.SignalStatus) {
			*s.AsOf = metav1.NewTime(kit.Noon.Add(5 * time.Minute))
		}), true},
		{"a timestamp younger by a moment", at(func(s *v1alpha1.SignalStatus) {
			*s.AsOf = metav1.NewTime(kit.Noon.Add(5 * time.Second))
		}), false},
		{"another source", at(func(s *v1alpha1.SignalStatus) { s.Source = "other" }), true},
		{"another forecaster", at(func(s *v1alpha1.SignalStatus) { s.ForecastSource = "other" }), true},
		{"another quality", at(func(s *v1alpha1.SignalStatus) { s.Quality = "estimated" }), true},
		{
			"earlier start", at(func(s *v1alpha1.SignalStatus) {
				s.Start = metav1.NewTime(kit.Noon.Add(-15 * time.Minute))
			}),
			true,
		},
	} {
		if got := signalChanged(at(nil), tc.is); got != tc.want {
			t.Errorf("%s: changed = %v", tc.name, got)
		}
	}
}
