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
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/panics"
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/sched"
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
	// Record, if set, takes decisions and what each was made on.
	Record func(ledger.Record, *sched.Snapshot)
	Clock  func() time.Time // nil: the real one

	// Estimator, if set, is where karmada-scheduler asks how many replicas a cluster has room for.
	Estimator net.Listener
	TLS       *tls.Config  // of it; nil: none
	Metrics   net.Listener // where /metrics and /healthz are served; nil: nowhere
	// Service is the host name under which karmada-scheduler reaches it; "": that is arranged elsewhere.
	Service string
	// Started, if set, is told of Jobs that have clusters.
	Started func(job types.UID)
	// Moves are how many running Jobs, of those that may be interrupted, are moved in an hour at most; 0: none.
	Moves float64
	// Upstream names the official estimator of a cluster; nil: there is none.
	Upstream func(cluster string) string
}

// Driver is what all parts share. Make it with [New].
type Driver struct {
	Options
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	members  *members
	identity string

	bound, joined, movable cache.SharedIndexInformer // bindings, clusters, Jobs that may be interrupted

	term atomic.Pointer[context.Context] // in which we hold the Lease, or held it last
}

// New returns a driver that knows nothing yet.
func New(o Options) (*Driver, error) {
	d := &Driver{Options: o, identity: string(uuid.NewUUID())}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Record == nil {
		d.Record = func(ledger.Record, *sched.Snapshot) {}
	}
	var err, errDynamic error
	d.client, err = kubernetes.NewForConfig(o.Config)
	d.dynamic, errDynamic = dynamic.NewForConfig(o.Config)
	if err = errors.Join(err, errDynamic); err != nil {
		return nil, fmt.Errorf("building clients: %w", err)
	}
	d.members = &members{config: o.Config, view: o.View, log: o.Log, of: map[string]*member{}}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(d.dynamic, time.Minute)
	d.bound, d.joined = factory.ForResource(kube.Bindings).Informer(), factory.ForResource(clusterResource).Informer()
	return d, errors.Join(d.bound.SetTransform(parse[binding]), d.joined.SetTransform(parse[cluster]),
		d.bound.AddIndexers(indexers))
}

// Run lets bindings go, answers karmada-scheduler, schedules what says schedulerName: kubenergy, and moves what may be
// interrupted, until ctx ends. Any number of replicas may run.
func (d *Driver) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	frees, places := newQueue(), newQueue() // so that letting go waits for no placing
	synced, err := d.follow(ctx, frees, places)
	if err != nil {
		return err
	}
	part := func(name string, run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				d.Log.Error("a part has ended", "part", name, "error", err)
				stop()
			}
		})
	}
	if d.Metrics != nil { // at once: a kubelet ends what shows no health while it waits for a large federation
		part("metrics", func(ctx context.Context) error { return serveMetrics(ctx, d.Metrics) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	if d.Estimator != nil {
		part("estimator", newEstimator(d).serve)
	}
	part("election", func(ctx context.Context) error { return d.campaign(ctx, places) })
	part("moves", d.move)
	part("looks", d.watchMembers)
	part("frees", func(ctx context.Context) error { return d.work(ctx, frees, d.free) })
	part("places", func(ctx context.Context) error { return d.work(ctx, places, d.settle) })
	<-ctx.Done()
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[string] // of bindings, namespace/name

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
		200*time.Millisecond, 30*time.Second))
}

// watchMembers looks at every member at least every ten seconds, so that the minute of a waiting pod begins in time.
func (d *Driver) watchMembers(ctx context.Context) error {
	for kube.Pause(ctx, believed/6) {
		for _, c := range d.clusters() {
			panics.Survive(d.Log, "karmada", "looking at a cluster", func() { d.members.look(c.Name, d.Clock()) })
		}
	}
	return nil
}

var errPanic = errors.New("it panicked")

// work does what is to be done about the bindings of a queue until ctx ends.
func (d *Driver) work(ctx context.Context, q queue, do func(context.Context, *binding) error) error {
	stop := context.AfterFunc(ctx, q.ShutDown)
	defer stop()
	for {
		key, down := q.Get()
		if down {
			return nil
		}
		if b := d.binding(key); b != nil {
			err := errPanic
			panics.Survive(d.Log, "karmada", "settling a binding", func() { err = do(ctx, b) })
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

// settle places a binding if that is due and ours to do.
func (d *Driver) settle(ctx context.Context, b *binding) error {
	if !d.leads() || b.Spec.SchedulerName != SchedulerName || b.suspended() || b.DeletionTimestamp != nil {
		return nil
	}
	if d.due(b) {
		return d.place(ctx, b)
	}
	if b.Generation != b.Status.SchedulerObservedGeneration {
		_, err := d.patch(ctx, b, "status", map[string]any{
			"status": map[string]any{"schedulerObservedGeneration": b.Generation},
		})
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
	add := func(q queue, suffix string) func(any) {
		return func(o any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				q.Add(key + suffix)
			}
		}
	}
	both := func(o any) {
		if b := o.(*binding); d.Started != nil && len(b.Spec.Clusters) > 0 {
			d.Started(types.UID(b.Spec.Resource.UID))
		}
		add(frees, "")(o)
		add(places, "")(o)
	}
	saw := func(o any) {
		c := o.(*cluster)
		changed, err := d.members.saw(ctx, c)
		if err = errors.Join(err, d.announce(ctx, c.Name)); err != nil {
			d.Log.Warn("following a cluster", "error", err)
		}
		for _, b := range bindings(d.bound.GetStore().List()) {
			if changed && b.Spec.SchedulerName == SchedulerName && (b.duplicated() || b.waits(d.gone)) {
				places.Add(b.Namespace + "/" + b.Name)
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
	err = errors.Join(
		handle(d.bound, both, both, nil),
		handle(d.joined, saw, saw, func(o any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				d.members.lost(key)
			}
		}),
		handle(held, nil, add(frees, "-job"), add(frees, "-job")), // what was held is, or is not, any more
	)
	for _, i := range []cache.SharedIndexInformer{d.bound, d.joined, held, d.movable} {
		go i.RunWithContext(ctx)
		synced = append(synced, i.HasSynced)
	}
	return synced, err
}

// estimatorPort is where karmada-scheduler looks for estimators.
const estimatorPort = 10352

// announce makes the Service by which karmada-scheduler finds the estimator of a cluster, unless it has one.
func (d *Driver) announce(ctx context.Context, cluster string) error {
	if d.Service == "" || d.Estimator == nil {
		return nil
	}
	_, port, err := net.SplitHostPort(d.Estimator.Addr().String())
	if err != nil {
		return err
	}
	_, err = d.client.CoreV1().Services(karmadaSystem).Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "karmada-scheduler-estimator-" + cluster, Labels: map[string]string{
			"app.kubernetes.io/managed-by": "kubenergy-karmada",
		}},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeExternalName, ExternalName: d.Service,
			Ports: []v1.ServicePort{{Name: "grpc", Port: estimatorPort, TargetPort: intstr.Parse(port)}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
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
func (d *Driver) campaign(ctx context.Context, places queue) error {
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: karmadaSystem, Name: LeaseName},
				Client:    d.client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: d.identity},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true, Name: LeaseName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(term context.Context) {
					d.term.Store(&term)
					for _, key := range d.bound.GetStore().ListKeys() { // what has waited for a leader
						places.Add(key)
					}
				},
				OnStoppedLeading: func() {}, // its term has ended
			},
		})
	}
	return nil
}
