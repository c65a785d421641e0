package karmada

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
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

// Options say what to do, and as whom.
type Options struct {
	Config *rest.Config // of Karmada's API server
	View   func() *kube.View
	Log    *slog.Logger
	// Record, if set, takes decisions and what each was made on.
	Record func(ledger.Record, *sched.Snapshot)
	Clock  func() time.Time // nil: the real one

	// Estimator, if set, is where karmada-scheduler asks how many replicas a cluster has room for.
	Estimator net.Listener
	TLS       *tls.Config // of it; nil: none
	// Service is the host name under which karmada-scheduler reaches it; "": that is arranged elsewhere.
	Service string
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

	leading atomic.Bool

	mu    sync.Mutex
	freed map[types.UID]time.Time // bindings that were let go
}

// New returns a driver that knows nothing yet.
func New(o Options) (*Driver, error) {
	d := &Driver{Options: o, identity: string(uuid.NewUUID()), freed: map[types.UID]time.Time{}}
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
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](
		200*time.Millisecond, 30*time.Second))
	synced, err := d.follow(ctx, queue)
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	part := func(name string, run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				d.Log.Error("a part has ended", "part", name, "error", err)
				stop()
			}
		})
	}
	if d.Estimator != nil {
		part("estimator", newEstimator(d).serve)
	}
	part("election", func(ctx context.Context) error { return d.campaign(ctx, queue) })
	part("moves", d.move)
	part("looks", d.watchMembers)
	part("bindings", func(ctx context.Context) error {
		stopQueue := context.AfterFunc(ctx, queue.ShutDown)
		defer stopQueue()
		for d.work(ctx, queue) {
		}
		return nil
	})
	<-ctx.Done()
	return nil
}

// watchMembers looks at members though nothing is asked, so that a pod that waits is known to.
func (d *Driver) watchMembers(ctx context.Context) error {
	for kube.Pause(ctx, believed/6) {
		for _, c := range d.members.clusters() {
			panics.Survive(d.Log, "karmada", "looking at a cluster", func() { d.members.look(c.Name, d.Clock()) })
		}
	}
	return nil
}

var errPanic = errors.New("it panicked")

// work settles the next binding. It returns false when there is none any more.
func (d *Driver) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) bool {
	key, down := queue.Get()
	if down {
		return false
	}
	defer queue.Done(key)
	err := errPanic
	panics.Survive(d.Log, "karmada", "settling a binding", func() { err = d.settle(ctx, key) })
	if err != nil {
		d.Log.Warn("settling a binding", "binding", key, "error", err)
		queue.AddRateLimited(key)
		return true
	}
	queue.Forget(key)
	return true
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
		d.mu.Lock()
		defer d.mu.Unlock()
		d.freed[b.UID] = d.Clock()
		maps.DeleteFunc(d.freed, func(_ types.UID, at time.Time) bool { return d.Clock().Sub(at) > patience })
	}
	return err
}

// settle does what is to be done about one binding.
func (d *Driver) settle(ctx context.Context, key string) error {
	b := d.binding(key)
	if b == nil {
		return nil
	}
	if err := d.free(ctx, b); err != nil {
		return err
	}
	if d.leading.Load() && b.due(d.gone) {
		return d.place(ctx, b)
	}
	return nil
}

func (d *Driver) gone(cluster string) bool {
	c := d.members.cluster(cluster)
	return c == nil || c.DeletionTimestamp != nil
}

// Sites are those of the clusters where a Job, namespace/name, may go, once its binding is known.
func (d *Driver) Sites(id string) (names []string, known bool) {
	b := d.binding(id + "-job")
	if b == nil || b.Spec.Placement == nil {
		return nil, false
	}
	for _, c := range d.members.clusters() {
		if site := d.View().SiteOfNode(c.locate(&v1.Node{})); b.refuses(c) == "" && site.Name != "" {
			names = append(names, site.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

// follow keeps bindings, clusters, and Jobs that are held or may be interrupted in sight.
func (d *Driver) follow(ctx context.Context, queue workqueue.TypedInterface[string]) (
	synced []cache.InformerSynced, err error,
) {
	labelled := func(selector string) cache.SharedIndexInformer {
		return informers.NewSharedInformerFactoryWithOptions(d.client, 0, informers.WithTransform(kube.Trim),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }),
		).Batch().V1().Jobs().Informer()
	}
	held := labelled(v1alpha1.LabelHeld)
	d.movable = labelled(v1alpha1.LabelInterruptible + "=true")
	add := func(suffix string) func(any) {
		return func(o any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				queue.Add(key + suffix)
			}
		}
	}
	saw := func(o any) {
		c := o.(*cluster)
		if err := errors.Join(d.members.saw(ctx, c), d.announce(ctx, c.Name)); err != nil {
			d.Log.Warn("following a cluster", "error", err)
		}
	}
	handle := func(i cache.SharedIndexInformer, added, changed, deleted func(any)) error {
		_, err := i.AddEventHandler(kube.Surviving(d.Log, cache.ResourceEventHandlerFuncs{
			AddFunc: added, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: deleted,
		}))
		return err
	}
	err = errors.Join(
		handle(d.bound, add(""), add(""), nil),
		handle(d.joined, saw, saw, func(o any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				d.members.lost(key)
			}
		}),
		handle(held, nil, add("-job"), add("-job")), // what was held is, or is not, any more
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

// campaign holds the Lease as long as it can, and tries again.
func (d *Driver) campaign(ctx context.Context, queue workqueue.TypedInterface[string]) error {
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: karmadaSystem, Name: LeaseName},
				Client:    d.client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: d.identity},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true, Name: LeaseName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					d.leading.Store(true)
					for _, key := range d.bound.GetStore().ListKeys() { // what has waited for a leader
						queue.Add(key)
					}
				},
				OnStoppedLeading: func() { d.leading.Store(false) },
			},
		})
	}
	return nil
}
