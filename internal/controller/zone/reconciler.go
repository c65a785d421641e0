package zone

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/controller/status"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// keeper keeps one signal of a zone up to date by querying its sources.
type keeper interface {
	Seed(last *v1alpha1.SignalStatus)
	Run(ctx context.Context, changed func())
	// Look returns the signal at the given time, or nil if it is unknown, and the error of the last query.
	Look(now time.Time) (*v1alpha1.SignalStatus, error)
}

// Intervals and timeouts of the reconciler.
const (
	zoneLook  = 30 * time.Second
	zoneWrite = 30 * time.Second
	// zonePatience is how long the reconciler waits for the first value of new keepers.
	zonePatience = 10 * time.Second
	// keeperPause is the delay before a keeper is restarted after a panic.
	keeperPause = time.Minute
)

// A Reconciler fills the status of GridZones. It must reconcile in a single goroutine. Keepers run until the
// context of Start is done.
type Reconciler struct {
	client  client.Client
	view    func() *kube.View
	carbon  func(*v1alpha1.GridZone) (keeper, error)
	price   func(*v1alpha1.GridZone) (keeper, error)
	now     func() time.Time
	log     *slog.Logger
	mu      sync.Mutex      // ensures that no keeper starts after keeping is canceled
	keeping context.Context // parent context of all keepers
	end     context.CancelFunc
	running sync.WaitGroup
	changes chan event.GenericEvent
	known   map[string]*knownZone // accessed only by the reconciling goroutine
}

// knownZone is a zone with running keepers.
type knownZone struct {
	grid          string // spec.zone
	carbon, price knownSignal
	wrote         time.Time
	began         time.Time // start time of the latest keeper
}

// knownSignal is a signal of a zone. It is empty if the spec does not request the signal.
type knownSignal struct {
	spec   any // the spec that the keeper was created from; nil if not requested
	keeper keeper
	err    error // the reason why there is no keeper
	stop   context.CancelFunc
}

// New returns a Reconciler without zones. Its keepers use the dependencies d.
func New(c client.Client, view func() *kube.View, d signal.Deps) *Reconciler {
	z := &Reconciler{
		client: c, view: view, now: time.Now, log: d.Log,
		carbon: func(z *v1alpha1.GridZone) (keeper, error) {
			return signal.NewCarbonKeeper(grid.Zone(z.Spec.Zone), z.Spec.Carbon, d)
		},
		price: func(z *v1alpha1.GridZone) (keeper, error) {
			return signal.NewPriceKeeper(grid.Zone(z.Spec.Zone), z.Spec.Price, d)
		},
		changes: make(chan event.GenericEvent, 1024), known: map[string]*knownZone{},
	}
	z.keeping, z.end = context.WithCancel(context.Background())
	return z
}

// SetUp adds the reconciler and its keepers to a manager.
func (z *Reconciler) SetUp(m manager.Manager) error {
	if err := m.Add(z); err != nil {
		return err
	}
	return builder.ControllerManagedBy(m).Named("gridzone").
		For(&v1alpha1.GridZone{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(z.changes, &handler.EnqueueRequestForObject{})).
		Complete(z)
}

// Start implements [manager.Runnable]. When ctx is done, it stops the keepers and waits for them.
func (z *Reconciler) Start(ctx context.Context) error {
	<-ctx.Done()
	z.mu.Lock()
	z.end()
	z.mu.Unlock()
	z.running.Wait()
	return nil
}

// Reconcile implements [reconcile.Reconciler].
func (z *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var zone v1alpha1.GridZone
	if err := z.client.Get(ctx, request.NamespacedName, &zone); err != nil {
		if apierrors.IsNotFound(err) {
			z.forget(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	known := z.keep(&zone)
	now := z.now()
	if wait := known.began.Add(zonePatience).Sub(now); wait > 0 && known.waiting(now) {
		// Wait for the first values, because the values in the status are better than none.
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	s := z.statusOf(&zone, known, now)
	s.Nodes = z.count(ctx, &zone)
	edited := s.ObservedGeneration != zone.Status.ObservedGeneration
	if !edited && !zoneChanged(&zone.Status, s) {
		return reconcile.Result{RequeueAfter: zoneLook}, nil
	}
	if wait := known.wrote.Add(zoneWrite).Sub(now); wait > 0 && !edited {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	zone.Status = *s
	again, written, err := status.Write(ctx, z.client, &zone, zoneLook)
	if written {
		known.wrote = now
	}
	return again, err
}

// count returns the number of nodes in the zone according to the view, or the previous number if it cannot be
// determined.
func (z *Reconciler) count(ctx context.Context, zone *v1alpha1.GridZone) *int32 {
	var all v1.NodeList
	view := z.view()
	if view.Site(zone.Name) == nil || z.client.List(ctx, &all, client.UnsafeDisableDeepCopy) != nil {
		return zone.Status.Nodes
	}
	count := new(int32)
	for i := range all.Items {
		if view.SiteOfNode(&all.Items[i]).Name == zone.Name {
			*count++
		}
	}
	return count
}

// keep ensures that a keeper runs for each signal in the spec. A keeper is replaced if its part of the spec
// changes.
func (z *Reconciler) keep(zone *v1alpha1.GridZone) *knownZone {
	known := z.known[zone.Name]
	if known == nil {
		known = &knownZone{}
		z.known[zone.Name] = known
	}
	// A status that an earlier process wrote for the same spec is as good as a new query.
	seen := zone.Status.ObservedGeneration == zone.Generation
	same := known.grid == zone.Spec.Zone
	known.grid = zone.Spec.Zone
	about := event.GenericEvent{Object: &v1alpha1.GridZone{ObjectMeta: metav1.ObjectMeta{Name: zone.Name}}}
	changed := func() {
		select {
		case z.changes <- about:
		default: // the periodic reconciliation will detect the change
		}
	}
	renew := func(s *knownSignal, spec any, asked bool, build func(*v1alpha1.GridZone) (keeper, error),
		last *v1alpha1.SignalStatus,
	) {
		if same && reflect.DeepEqual(s.spec, spec) {
			return
		}
		if s.stop != nil {
			s.stop()
		}
		if *s = (knownSignal{}); !asked {
			return
		}
		s.spec = spec
		if s.keeper, s.err = build(zone.DeepCopy()); s.err != nil {
			s.keeper = nil // build returned a nil pointer in a non-nil interface
			return
		}
		if seen && last != nil {
			s.keeper.Seed(last)
		}
		known.began = z.now()
		var own context.Context
		own, s.stop = context.WithCancel(z.keeping)
		k, name := s.keeper, zone.Name // the caller modifies the zone while keepers run
		z.mu.Lock()
		defer z.mu.Unlock()
		if own.Err() == nil {
			z.running.Go(func() { z.run(own, name, k, changed) })
		}
	}
	renew(&known.carbon, zone.Spec.Carbon, zone.Spec.Carbon != nil, z.carbon, zone.Status.Carbon)
	renew(&known.price, zone.Spec.Price, zone.Spec.Price != nil, z.price, zone.Status.Price)
	return known
}

// run runs a keeper until ctx is done. A keeper that panics is restarted after a pause, and the process continues.
func (z *Reconciler) run(ctx context.Context, name string, k keeper, changed func()) {
	for ctx.Err() == nil {
		panics.Survive(z.log, "signal", "the keeper of GridZone "+name, func() { k.Run(ctx, changed) })
		kube.Pause(ctx, keeperPause)
	}
}

// waiting reports whether a keeper has returned neither a value nor an error yet.
func (k *knownZone) waiting(now time.Time) bool {
	return slices.ContainsFunc([]*knownSignal{&k.carbon, &k.price}, func(s *knownSignal) bool {
		current, err := s.look(now)
		return s.keeper != nil && current == nil && err == nil
	})
}

func (z *Reconciler) forget(name string) {
	if known := z.known[name]; known != nil {
		for _, s := range []*knownSignal{&known.carbon, &known.price} {
			if s.stop != nil {
				s.stop()
			}
		}
		delete(z.known, name)
	}
}
