package karmada

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/scheduler/record"
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
	Record func(*record.Entry) // nil: nothing is recorded
	Clock  func() time.Time    // nil: the real one

	// Estimator, if set, is where karmada-scheduler asks how many replicas a cluster has room for.
	Estimator net.Listener
	TLS       *tls.Config // of it; nil: none
	// Service is the host name under which karmada-scheduler reaches it; "": that is arranged elsewhere.
	Service string
	// Upstream names the official estimator of a cluster; nil: there is none.
	Upstream func(cluster string) string
}

// driver is what all parts share.
type driver struct {
	Options
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	members  *members
	store    cache.Store // of bindings
	identity string

	leading atomic.Bool

	mu    sync.Mutex
	sent  []sent
	freed map[types.UID]time.Time // bindings that were let go
}

func (d *driver) now() time.Time   { return d.Clock() }
func (d *driver) view() *kube.View { return d.View() }

// Run lets bindings go, answers karmada-scheduler, and schedules what says schedulerName: kubenergy, until ctx ends. Any
// number of replicas may run.
func Run(ctx context.Context, o Options) error {
	d := &driver{Options: o, identity: string(uuid.NewUUID()), freed: map[types.UID]time.Time{}}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	var err, errDynamic error
	d.client, err = kubernetes.NewForConfig(o.Config)
	d.dynamic, errDynamic = dynamic.NewForConfig(o.Config)
	if err = errors.Join(err, errDynamic); err != nil {
		return fmt.Errorf("building clients: %w", err)
	}
	d.members = &members{config: o.Config, view: o.View, log: o.Log, of: map[string]*member{}}
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
	if o.Estimator != nil {
		e := newEstimator(d)
		running.Go(func() {
			if err := e.serve(ctx, o.Estimator, o.TLS); err != nil && ctx.Err() == nil {
				o.Log.Error("answering karmada-scheduler", "error", err)
				stop()
			}
		})
	}
	running.Go(func() { d.campaign(ctx) })
	stopQueue := context.AfterFunc(ctx, queue.ShutDown)
	defer stopQueue()
	for {
		key, down := queue.Get()
		if down {
			return nil
		}
		err := errPanic
		panics.Survive(d.Log, "karmada", "settling a binding", func() { err = d.settle(ctx, key) })
		if err != nil {
			d.Log.Warn("settling a binding", "binding", key, "error", err)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

var errPanic = errors.New("it panicked")

// settle does what is to be done about one binding.
func (d *driver) settle(ctx context.Context, key string) error {
	o, found, err := d.store.GetByKey(key)
	if err != nil || !found {
		return err
	}
	b, err := readBinding(o.(*unstructured.Unstructured))
	if err != nil {
		return err
	}
	if err := d.free(ctx, b); err != nil {
		return err
	}
	if d.leading.Load() && b.due(d.gone) {
		return d.place(ctx, b)
	}
	return nil
}

func (d *driver) gone(cluster string) bool {
	c := d.members.cluster(cluster)
	return c == nil || c.DeletionTimestamp != nil
}

// follow keeps bindings, clusters and Jobs that are released in sight.
func (d *driver) follow(ctx context.Context, queue workqueue.TypedInterface[string]) ([]cache.InformerSynced, error) {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(d.dynamic, time.Minute)
	jobs := informers.NewSharedInformerFactoryWithOptions(d.client, 0, informers.WithTweakListOptions(
		func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.LabelHeld }))
	bindings, clusters := factory.ForResource(bindingResource).Informer(), factory.ForResource(clusterResource).Informer()
	d.store = bindings.GetStore()
	add := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			queue.Add(key)
		}
	}
	_, err := bindings.AddEventHandler(kube.Surviving(d.Log, cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) },
	}))
	saw := func(o any) {
		c, err := read[cluster](o.(*unstructured.Unstructured))
		if err == nil {
			err = errors.Join(d.members.saw(ctx, c), d.announce(ctx, c.Name))
		}
		if err != nil {
			d.Log.Warn("following a cluster", "error", err)
		}
	}
	_, errClusters := clusters.AddEventHandler(kube.Surviving(d.Log, cache.ResourceEventHandlerFuncs{
		AddFunc: saw, UpdateFunc: func(_, o any) { saw(o) }, DeleteFunc: func(o any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				d.members.lost(key)
			}
		},
	}))
	freed := func(o any) { // what was held is, or is not, any more
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			queue.Add(key + "-job")
		}
	}
	_, errJobs := jobs.Batch().V1().Jobs().Informer().AddEventHandler(kube.Surviving(d.Log, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, o any) { freed(o) }, DeleteFunc: freed,
	}))
	err = errors.Join(err, errJobs)
	jobs.StartWithContext(ctx)
	factory.Start(ctx.Done())
	return []cache.InformerSynced{bindings.HasSynced, clusters.HasSynced}, errors.Join(err, errClusters)
}

// estimatorPort is where karmada-scheduler looks for estimators.
const estimatorPort = 10352

// announce makes the Service by which karmada-scheduler finds the estimator of a cluster, unless it has one.
func (d *driver) announce(ctx context.Context, cluster string) error {
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

// bindings are those that are known.
func (d *driver) bindings() (all []*binding) {
	for _, o := range d.store.List() {
		if b, err := readBinding(o.(*unstructured.Unstructured)); err == nil {
			all = append(all, b)
		}
	}
	return all
}

// campaign holds the Lease as long as it can, and tries again.
func (d *driver) campaign(ctx context.Context) {
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: karmadaSystem, Name: LeaseName},
				Client:    d.client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: d.identity},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true, Name: LeaseName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { d.leading.Store(true) },
				OnStoppedLeading: func() { d.leading.Store(false) },
			},
		})
	}
}

// sent is work that went to a cluster, and whose pods may not be seen there yet.
type sent struct {
	cluster, job string // namespace/name
	request      sched.Resources
	replicas     int32
	at           time.Time
}

// arrival is how long what was sent counts as there, seen or not.
const arrival = 30 * time.Second
