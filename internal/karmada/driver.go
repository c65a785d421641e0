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
)

// LeaseName is the Lease in karmada-system whose holder schedules bindings. A stock karmada-scheduler that is started
// with --scheduler-name=kubenergy and --leader-elect-resource-name of this name takes over where none of ours lives.
const LeaseName = "kubenergy-karmada"

const karmadaSystem = "karmada-system"

// Options are what a Driver is made of.
type Options struct {
	Config *rest.Config // of Karmada's API server
	View   func() *kube.View
	Log    *slog.Logger
	Record func(ledger.Record, *sched.Snapshot) // takes decisions and what each was made on
	Clock  func() time.Time

	// Estimator, if set, is where karmada-scheduler asks how many replicas a cluster has room for.
	Estimator net.Listener
	TLS       *tls.Config  // of it; nil: none
	Metrics   net.Listener // where /metrics and /healthz are served; nil: nowhere
	// Started, if set, is told of Jobs that have clusters, and of those for which none has room.
	Started func(job types.UID, room bool)
	// Moves are how many running Jobs, of those that may be interrupted, are moved in an hour at most; 0: none.
	Moves float64
	// Upstream is the address of the official estimator of a cluster, {cluster} being its name; "": there is none.
	Upstream string
}

// Driver is what all parts share. Make it with [New].
type Driver struct {
	Options
	client  kubernetes.Interface
	dynamic dynamic.Interface
	members *members

	bound, joined, movable cache.SharedIndexInformer // bindings, clusters, Jobs that may be interrupted

	beats daemon.Heartbeats // of the loops that Run starts

	term atomic.Pointer[context.Context] // in which we hold the Lease, or held it last
}

// New returns a driver that knows nothing yet.
func New(o Options) (*Driver, error) {
	d := &Driver{Options: o}
	var err, errDynamic error
	d.client, err = kubernetes.NewForConfig(o.Config)
	d.dynamic, errDynamic = dynamic.NewForConfig(o.Config)
	if err = errors.Join(err, errDynamic); err != nil {
		return nil, fmt.Errorf("building clients: %w", err)
	}
	d.members = &members{config: o.Config, view: o.View, of: map[string]*member{}}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(d.dynamic, time.Minute)
	d.bound, d.joined = factory.ForResource(kube.Bindings).Informer(), factory.ForResource(clusterResource).Informer()
	return d, errors.Join(d.bound.SetTransform(parse[binding]), d.joined.SetTransform(parse[cluster]),
		d.bound.AddIndexers(indexers))
}

// Run lets bindings go, answers karmada-scheduler, schedules what says schedulerName: kubenergy, and moves what may be
// interrupted, until ctx ends. Any number of replicas may run.
func (d *Driver) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	frees, places := newQueue(), newQueue() // so that letting go waits for no placing
	synced, err := d.follow(ctx, frees, places)
	if err != nil {
		return err
	}
	if d.Metrics != nil { // at once: a kubelet ends what shows no health while it waits for a large federation
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

type queue = workqueue.TypedRateLimitingInterface[string] // of bindings, namespace/name

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
		200*time.Millisecond, 30*time.Second))
}

// watchMembers looks at every member at least every ten seconds, so that the minute of a waiting pod begins in time.
func (d *Driver) watchMembers(ctx context.Context) {
	for kube.Pause(ctx, believed/6) {
		daemon.Round(ctx, func() {
			for _, c := range d.clusters() {
				panics.Survive(d.Log, "karmada", "looking at a cluster", func() { d.members.look(c.Name, d.Clock()) })
			}
		})
	}
}

var errPanic = errors.New("it panicked")

// bindingTimeout is for all calls about one binding; a queue tries again later.
const bindingTimeout = 30 * time.Second

// work does what is to be done about the bindings of a queue until ctx ends.
func (d *Driver) work(ctx context.Context, q queue, do func(context.Context, *binding) error) {
	stop := context.AfterFunc(ctx, q.ShutDown)
	defer stop()
	for {
		key, down := q.Get()
		if down {
			return
		}
		if b := d.binding(key); b != nil {
			err := errPanic
			panics.Survive(d.Log, "karmada", "settling a binding", func() {
				ctx, cancel := context.WithTimeout(ctx, bindingTimeout)
				defer cancel()
				daemon.Round(ctx, func() { err = do(ctx, b) })
			})
			if err != nil {
				d.Log.Warn("settling a binding", "binding", key, "error", err)
				q.AddRateLimited(key)
			} else {
				q.Forget(key)
			}
		}
		q.Done(key)
	}
}

// free lets a binding go that admission has suspended, once its Job is not held.
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

// reconcile places a binding if that is due and ours to do.
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

// clusters returns all clusters, by name. They come from the informer, which has synced before its handlers have run.
func (d *Driver) clusters() (all []*cluster) {
	for _, o := range d.joined.GetStore().List() {
		all = append(all, o.(*cluster))
	}
	slices.SortFunc(all, func(a, b *cluster) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// cluster returns one of them, or nil.
func (d *Driver) cluster(name string) *cluster {
	o, _, _ := d.joined.GetStore().GetByKey(name)
	c, _ := o.(*cluster)
	return c
}

func (d *Driver) gone(name string) bool {
	c := d.cluster(name)
	return c == nil || c.DeletionTimestamp != nil
}

// Sites are those of the clusters where a Job, namespace/name, may go, once its binding is known.
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

// follow keeps bindings, clusters, and Jobs that are held or may be interrupted in sight.
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
			d.Log.Warn("following a cluster", "error", err)
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
			synced = append(synced, r.HasSynced) // once the handlers have run
		}
		return err
	}
	free := named(func(job string) { frees.Add(job + "-job") }) // what was held is, or is not, any more
	err = errors.Join(handle(d.bound, both, both, nil), handle(d.joined, saw, saw, named(d.members.lost)),
		handle(held, nil, free, free))
	for _, i := range []cache.SharedIndexInformer{d.bound, d.joined, held, d.movable} {
		go i.RunWithContext(ctx)
		synced = append(synced, i.HasSynced)
	}
	return synced, err
}

// byCluster finds bindings by where they were sent.
const byCluster = "cluster"

var indexers = cache.Indexers{byCluster: func(o any) ([]string, error) { return o.(*binding).clusters(), nil }}

// sent are the bindings that were sent to a cluster.
func (d *Driver) sent(cluster string) []*binding {
	all, _ := d.bound.GetIndexer().ByIndex(byCluster, cluster)
	return bindings(all)
}

func bindings(all []any) []*binding {
	bindings := make([]*binding, len(all))
	for i := range all {
		bindings[i] = all[i].(*binding)
	}
	return bindings
}

// binding returns one of them, or nil.
func (d *Driver) binding(key string) *binding {
	o, _, _ := d.bound.GetStore().GetByKey(key)
	b, _ := o.(*binding)
	return b
}

// leads reports whether we hold the Lease. A term that ends at once may be stored after its end, and counts as ended.
func (d *Driver) leads() bool {
	term := d.term.Load()
	return term != nil && (*term).Err() == nil
}

// campaign holds the Lease as long as it can, and tries again.
func (d *Driver) campaign(ctx context.Context, places queue) {
	const renew = 2 * time.Second
	kube.Lead(ctx, d.client, karmadaSystem, LeaseName, string(uuid.NewUUID()), renew, func(term context.Context) {
		d.term.Store(&term)
		for _, key := range d.bound.GetStore().ListKeys() { // what has waited for a leader
			places.Add(key)
		}
	})
}
