package power

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// Replicas is the number of replicas in the Helm chart. Both wake machines.
const Replicas = 2

// Name is the name of the process, its Lease and its ServiceAccount.
const Name = "kubenergy-power"

const (
	usualPause = 5 * time.Second
	minPause   = time.Second
)

// Run puts machines to sleep and wakes them until ctx is done. There may be any number of replicas: each wakes
// machines, and the holder of the Lease kubenergy-power also puts them to sleep.
//
// A machine is asleep once its management controller reports that it is off and its node is not Ready. It is awake
// once its node is Ready again.
func Run(ctx context.Context, o Options) error {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Clock == nil {
		o.Clock = time.Now
	}
	switches, err := NewSwitches(o.Machines, o.Keys, o.Loopback)
	if err != nil {
		return err
	}
	defer closeAll(switches)
	l := newLoop(o, switches)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if o.Probes != nil {
		running.Go(func() { _ = daemon.Serve(ctx, o.Probes, daemon.NewServer(l.Beats, o.Log)) })
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: o.Client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("recording events: %w", err)
	}
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, Name)
	l.event = func(n *v1.Node, kind, reason, note string) {
		recorder.Eventf(n, nil, kind, reason, "Power", "%s", note)
	}
	var leading atomic.Pointer[context.Context]
	l.leads = func() bool { leads := leading.Load(); return leads != nil && (*leads).Err() == nil }
	running.Go(func() {
		kube.Lead(ctx, o.Client, cmp.Or(o.Namespace, v1alpha1.SystemNamespace), Name, o.Identity, 2*time.Second,
			func(term context.Context) { leading.Store(&term) })
	})
	changed := make(chan struct{}, 1)
	synced := l.follow(ctx, changed)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	return l.run(l.Beats.Loop(ctx, Name), changed)
}

// run executes a round after each change, and at least once per interval.
func (l *loop) run(ctx context.Context, changed <-chan struct{}) error {
	ticker := time.NewTicker(cmp.Or(l.Every, usualPause))
	defer ticker.Stop()
	for {
		l.round(ctx)
		if !kube.Pause(ctx, minPause) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-changed:
		}
	}
}

// follow starts the informers of all objects that decisions depend on.
func (l *loop) follow(ctx context.Context, changed chan<- struct{}) (synced []cache.InformerSynced) {
	factory := informers.NewSharedInformerFactoryWithOptions(l.Client, 0, informers.WithTransform(kube.Trim))
	nodes, pods := factory.Core().V1().Nodes(), factory.Core().V1().Pods()
	jobs, volumes := factory.Batch().V1().Jobs(), factory.Core().V1().PersistentVolumes()
	poke := func() { daemon.Poke(changed) }
	handler := kube.Surviving(l.Log, cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { poke() }, UpdateFunc: func(any, any) { poke() }, DeleteFunc: func(any) { poke() },
	})
	for _, i := range []cache.SharedIndexInformer{
		nodes.Informer(), pods.Informer(), jobs.Informer(), volumes.Informer(),
	} {
		_, _ = i.AddEventHandler(handler) // returns an error only if the informer has stopped
		synced = append(synced, i.HasSynced)
	}
	l.list = func() *cluster {
		c := &cluster{} // listers of caches never return errors
		c.nodes, _ = nodes.Lister().List(labels.Everything())
		c.pods, _ = pods.Lister().List(labels.Everything())
		c.jobs, _ = jobs.Lister().List(labels.Everything())
		c.volumes, _ = volumes.Lister().List(labels.Everything())
		return c
	}
	factory.StartWithContext(ctx)
	return synced
}
