package karmada

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// LeaseName is the name of the Lease in karmada-system for the leader that schedules bindings. A stock
// karmada-scheduler with --scheduler-name=kubenergy and --leader-elect-resource-name set to this name takes over if
// no replica of kubenergy-karmada is running.
const LeaseName = "kubenergy-karmada"

const karmadaSystem = "karmada-system"

// Options configures a Driver.
type Options struct {
	Config *rest.Config // for Karmada's API server
	View   func() *kube.View
	Log    *slog.Logger
	Record func(ledger.Record, *sched.Snapshot) // records decisions with their input
	Clock  func() time.Time

	// Estimator is the listener of the estimator for karmada-scheduler. If nil, the estimator is disabled.
	Estimator net.Listener
	TLS       *tls.Config  // TLS configuration of Estimator; nil disables TLS
	Metrics   net.Listener // listener for /metrics and /healthz; nil disables them
	// Started is called for Jobs that have clusters, and with room set to false for Jobs without a cluster with
	// enough capacity. It may be nil.
	Started func(job types.UID, room bool)
	// Moves is the maximum number of running interruptible Jobs moved per hour. 0 disables moves.
	Moves float64
	// Upstream is the address of the official estimators, with {cluster} as a placeholder for the name of the
	// cluster. It may be empty.
	Upstream string
}

// Driver schedules and releases bindings. Use [New] to create one.
type Driver struct {
	Options
	client  kubernetes.Interface
	dynamic dynamic.Interface
	members *members

	bound, joined, movable cache.SharedIndexInformer // bindings, clusters and interruptible Jobs

	beats daemon.Heartbeats // heartbeats of the loops started by Run

	term atomic.Pointer[context.Context] // context of the current or last leader term
}

// New returns a Driver. It is inactive until Run is called.
func New(o Options) (*Driver, error) {
	d := &Driver{Options: o}
	var err, errDynamic error
	d.client, err = kubernetes.NewForConfig(o.Config)
	d.dynamic, errDynamic = dynamic.NewForConfig(o.Config)
	if err = errors.Join(err, errDynamic); err != nil {
		return nil, fmt.Errorf("creating clients: %w", err)
	}
	d.members = &members{config: o.Config, view: o.View, of: map[string]*member{}}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(d.dynamic, time.Minute)
	d.bound, d.joined = factory.ForResource(kube.Bindings).Informer(), factory.ForResource(clusterResource).Informer()
	return d, errors.Join(d.bound.SetTransform(parse[binding]), d.joined.SetTransform(parse[cluster]),
		d.bound.AddIndexers(indexers))
}

// Run releases bindings, serves the estimator, schedules bindings with schedulerName: kubenergy and moves
// interruptible Jobs until ctx is done. Several replicas may run concurrently.
func (d *Driver) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	frees, places := newQueue(), newQueue() // separate queues, so that releases do not wait for placements
	synced, err := d.follow(ctx, frees, places)
	if err != nil {
		return err
	}
	if d.Metrics != nil { // before the caches have synced, so that liveness probes succeed
		group.Go(func() error { return serveMetrics(ctx, d.Metrics, &d.beats, d.Log) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return group.Wait()
	}
	if d.Estimator != nil {
		group.Go(func() error { return newEstimator(d).serve(ctx) })
	}
	for name, part := range map[string]func(context.Context){
		"campaign": func(ctx context.Context) { d.campaign(ctx, places) }, "moves": d.move, "members": d.watchMembers,
		"releases":   func(ctx context.Context) { d.work(ctx, frees, d.free) },
		"placements": func(ctx context.Context) { d.work(ctx, places, d.reconcile) },
	} {
		group.Go(func() error { part(d.beats.Loop(ctx, name)); return nil })
	}
	return group.Wait()
}

type queue = workqueue.TypedRateLimitingInterface[string] // of namespace/name of bindings

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
		200*time.Millisecond, 30*time.Second))
}

// watchMembers updates the snapshots of all members at least every ten seconds, so that unschedulable pods are
// detected in time.
func (d *Driver) watchMembers(ctx context.Context) {
	for kube.Pause(ctx, believed/6) {
		daemon.Round(ctx, func() {
			for _, c := range d.clusters() {
				panics.Survive(d.Log, "karmada", "snapshot of a cluster", func() { d.members.look(c.Name, d.Clock()) })
			}
		})
	}
}

// bindingTimeout limits the processing of a binding. The queue retries it later.
const bindingTimeout = 30 * time.Second

// work processes the bindings of a queue until ctx is done.
func (d *Driver) work(ctx context.Context, q queue, do func(context.Context, *binding) error) {
	stop := context.AfterFunc(ctx, q.ShutDown)
	defer stop()
	for {
		key, down := q.Get()
		if down {
			return
		}
		if b := d.binding(key); b != nil {
			if err := panics.Try(d.Log, "karmada", "reconciling a binding", func() (err error) {
				ctx, cancel := context.WithTimeout(ctx, bindingTimeout)
				defer cancel()
				daemon.Round(ctx, func() { err = do(ctx, b) })
				return err
			}); err != nil {
				d.Log.Warn("Failed to reconcile binding, retrying", "binding", key, "error", err)
				q.AddRateLimited(key)
			} else {
				q.Forget(key)
			}
		}
		q.Done(key)
	}
}

// free releases a binding that was suspended by admission if its Job is not held.
func (d *Driver) free(ctx context.Context, b *binding) error {
	if !b.suspended() || b.Labels[v1alpha1.LabelHeld] == "" {
		return nil
	}
	r := &b.Spec.Resource
	held := kube.HeldBinding{Namespace: b.Namespace, Name: b.Name, JobNamespace: r.Namespace, Job: r.Name, UID: r.UID}
	freed, err := held.Free(ctx, d.dynamic)
	if freed {
		frees.Inc()
	}
	return err
}

// reconcile schedules a binding if it is due and this replica is the leader.
func (d *Driver) reconcile(ctx context.Context, b *binding) error {
	if !d.leads() || b.Spec.SchedulerName != SchedulerName || b.suspended() || b.DeletionTimestamp != nil {
		return nil
	}
	if d.due(b) {
		return d.place(ctx, b)
	}
	if b.Generation != b.Status.SchedulerObservedGeneration {
		_, err := d.patch(ctx, b, map[string]any{
			"status": map[string]any{"schedulerObservedGeneration": b.Generation},
		}, "status")
		return err
	}
	return nil
}

// clusters returns all clusters from the informer, sorted by name.
func (d *Driver) clusters() []*cluster {
	all := sliceutil.Map(d.joined.GetStore().List(), func(o any) *cluster { return o.(*cluster) })
	slices.SortFunc(all, func(a, b *cluster) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// cluster returns the cluster with the given name, or nil.
func (d *Driver) cluster(name string) *cluster {
	o, _, _ := d.joined.GetStore().GetByKey(name)
	c, _ := o.(*cluster)
	return c
}

func (d *Driver) gone(name string) bool {
	c := d.cluster(name)
	return c == nil || c.DeletionTimestamp != nil
}

// Sites returns the sites of the clusters that accept the Job with the given namespace/name. It returns false if
// the binding of the Job does not exist yet.
func (d *Driver) Sites(id string) (names []string, known bool) {
	b := d.binding(id + "-job")
	if b == nil || b.Spec.Placement == nil {
		return nil, false
	}
	for _, c := range d.clusters() {
		if site := d.View().SiteOfNode(c.locate(&v1.Node{})); b.refuses(c) == "" && site.Name != "" {
			names = append(names, site.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

// follow starts informers for bindings, clusters, held Jobs and interruptible Jobs, and returns their sync
// functions.
func (d *Driver) follow(ctx context.Context, frees, places queue) (
	synced []cache.InformerSynced, err error,
) {
	labelled := func(selector string) cache.SharedIndexInformer {
		return informers.NewSharedInformerFactoryWithOptions(d.client, 0, informers.WithTransform(kube.Trim),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }),
		).Batch().V1().Jobs().Informer()
	}
	held := labelled(v1alpha1.LabelHeld)
	d.movable = labelled(v1alpha1.LabelInterruptible + "=true")
	named := func(do func(key string)) func(any) {
		return func(o any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				do(key)
			}
		}
	}
	both := func(o any) {
		b := o.(*binding)
		if d.Started != nil && (len(b.Spec.Clusters) > 0 || b.lacksRoom()) {
			d.Started(types.UID(b.Spec.Resource.UID), !b.lacksRoom())
		}
		frees.Add(b.key())
		places.Add(b.key())
	}
	saw := func(o any) {
		c := o.(*cluster)
		changed, err := d.members.saw(ctx, c)
		if err != nil {
			d.Log.Warn("Failed to watch cluster", "error", err)
		}
		for _, b := range bindings(d.bound.GetStore().List()) {
			if changed && b.Spec.SchedulerName == SchedulerName && (b.duplicated() || b.waits(d.gone)) {
				places.Add(b.key())
			}
		}
	}
	handle := func(i cache.SharedIndexInformer, added, changed, deleted func(any)) error {
		r, err := i.AddEventHandler(kube.Surviving(d.Log, cache.ResourceEventHandlerFuncs{
			AddFunc: added, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: deleted,
		}))
		if err == nil {
			synced = append(synced, r.HasSynced) // true after the handlers have run
		}
		return err
	}
	free := named(func(job string) { frees.Add(job + "-job") }) // the hold of the Job may have changed
	err = errors.Join(handle(d.bound, both, both, nil), handle(d.joined, saw, saw, named(d.members.lost)),
		handle(held, nil, free, free))
	for _, i := range []cache.SharedIndexInformer{d.bound, d.joined, held, d.movable} {
		go i.RunWithContext(ctx)
		synced = append(synced, i.HasSynced)
	}
	return synced, err
}

// byCluster is the name of the index of bindings by cluster.
const byCluster = "cluster"

var indexers = cache.Indexers{byCluster: func(o any) ([]string, error) { return o.(*binding).clusters(), nil }}

// sent returns the bindings that are propagated to a cluster.
func (d *Driver) sent(cluster string) []*binding {
	all, _ := d.bound.GetIndexer().ByIndex(byCluster, cluster)
	return bindings(all)
}

func bindings(all []any) []*binding {
	return sliceutil.Map(all, func(o any) *binding { return o.(*binding) })
}

// binding returns the binding with the given key, or nil.
func (d *Driver) binding(key string) *binding {
	o, _, _ := d.bound.GetStore().GetByKey(key)
	b, _ := o.(*binding)
	return b
}

// leads reports whether this replica is the leader. A term may be stored after its end and is then ignored.
func (d *Driver) leads() bool {
	term := d.term.Load()
	return term != nil && (*term).Err() == nil
}

// campaign runs leader election until ctx is done.
func (d *Driver) campaign(ctx context.Context, places queue) {
	const renew = 2 * time.Second
	kube.Lead(ctx, d.client, karmadaSystem, LeaseName, string(uuid.NewUUID()), renew, func(term context.Context) {
		d.term.Store(&term)
		for _, key := range d.bound.GetStore().ListKeys() { // bindings that waited for a leader
			places.Add(key)
		}
	})
}
