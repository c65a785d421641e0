package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/controller/signal"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
)

// leaseName is the Lease whose holder writes.
const leaseName = "kubenergy-controller"

// Run is the controller's process: it returns when ctx ends, or with an error if it cannot begin or no longer leads.
func Run(ctx context.Context, api *rest.Config, o Options, log *slog.Logger) error {
	c, err := build(ctx, api, o, log, metrics.Registry)
	if err != nil {
		return err
	}
	return c.run(ctx)
}

// run runs everything until ctx ends, or something does.
func (c *controller) run(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	if c.central != nil {
		// It answers without the API server, which the manager waits for.
		group.Go(func() error { return c.central.run(groupCtx) })
	}
	group.Go(func() error {
		if err := c.manager.Start(groupCtx); err != nil {
			return err
		}
		return context.Canceled // everything ends with it
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// controller is everything, wired.
type controller struct {
	manager  manager.Manager
	options  Options
	log      *slog.Logger
	defaults policy.Defaults
	objects  *kube.Objects
	metrics  *instruments
	held     *heldJobs
	history  *history
	shadow   *shadow
	accounts *accounts
	zones    *zones
	central  *central      // nil: there is nowhere to keep a ledger
	direct   client.Client // does not read from a cache
	synced   atomic.Int32  // of the kinds that are followed
}

// defaults are what holds where no policy says anything. They are those of the scheduler.
func defaults(environ []string, log *slog.Logger) policy.Defaults {
	d, warnings := policy.AliasEnvironment(environ, policy.BuiltIn())
	for _, w := range append(warnings, unheeded(environ)...) {
		log.Warn("a variable of the environment is not obeyed", "why", w)
	}
	return d
}

func build(ctx context.Context, api *rest.Config, o Options, log *slog.Logger,
	registry prometheus.Registerer,
) (*controller, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	c := &controller{
		options: o, log: log, defaults: defaults(os.Environ(), log), metrics: newInstruments(registry),
		held: newHeldJobs(), history: newHistory(),
	}
	var err error
	if c.manager, err = manager.New(api, managerOptions(o, scheme, c.sawWhole, log)); err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	if c.direct, err = client.New(api, client.Options{
		Scheme: scheme, Mapper: c.manager.GetRESTMapper(), HTTPClient: c.manager.GetHTTPClient(),
	}); err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	if c.objects, err = kube.NewObjects(api, log); err != nil {
		return nil, err
	}
	c.objects.Defaults = c.defaults
	if c.central, err = newCentral(ctx, api, c, registry); err != nil {
		return nil, fmt.Errorf("building the central unit: %w", err)
	}
	for _, add := range []func(prometheus.Registerer) error{
		c.addZones, c.addProfiles, c.addPolicies, c.addWork, c.addProbes,
	} {
		if err := add(registry); err != nil {
			return nil, errors.Join(fmt.Errorf("building the manager: %w", err), c.central.close())
		}
	}
	return c, nil
}

// sawWhole is shown every pod before it is trimmed.
func (c *controller) sawWhole(p *v1.Pod) {
	if c.central != nil {
		c.central.pods.Saw(p)
	}
}

func managerOptions(o Options, scheme *runtime.Scheme, saw func(*v1.Pod), log *slog.Logger) manager.Options {
	return manager.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(log.Handler()), Cache: cacheOptions(saw),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper(), nil },
		LeaderElection: elects(&o, log), LeaderElectionID: leaseName, LeaderElectionNamespace: o.Namespace,
		LeaderElectionReleaseOnCancel: true, // Run's caller ends the process when it returns
		HealthProbeBindAddress:        o.ProbeAddress,
		Metrics: metricsserver.Options{
			BindAddress: o.MetricsAddress, SecureServing: true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		Controller: config.Controller{
			RecoverPanic: new(true),
			// Our kinds may be installed after us, and rights granted: wait, rather than end and begin again.
			CacheSyncTimeout: 365 * 24 * time.Hour,
			// Two managers in one process are two tests.
			SkipNameValidation: new(true),
		},
	}
}

// elects reports whether replicas elect a leader. An SQLite file is locked by the one process that has it: a Lease
// says nothing more, and would end that process while the API server cannot renew it, though agents could go on
// delivering.
func elects(o *Options, log *slog.Logger) bool {
	if o.LeaderElect && o.State != "" && o.LedgerDSN == "" {
		log.Info("No leader is elected: the ledger is an SQLite file, and there is one replica")
		return false
	}
	return o.LeaderElect
}

// mapper knows the kinds that are used here. To discover them, the API server would have to be there, and our kinds
// installed, before anything can be built; so we begin without it, and what is missing is tried again.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for scope, kinds := range map[meta.RESTScope][]schema.GroupVersionKind{
		meta.RESTScopeNamespace: {
			v1.SchemeGroupVersion.WithKind("Pod"), v1.SchemeGroupVersion.WithKind("ConfigMap"),
			batchv1.SchemeGroupVersion.WithKind("Job"),
			coordinationv1.SchemeGroupVersion.WithKind("Lease"), eventsv1.SchemeGroupVersion.WithKind("Event"),
			v1alpha1.GroupVersion.WithKind("EnergyPolicy"), v1alpha1.GroupVersion.WithKind("EnergyBudget"),
		},
		meta.RESTScopeRoot: {
			v1.SchemeGroupVersion.WithKind("Node"), v1.SchemeGroupVersion.WithKind("Namespace"),
			authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
			admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"),
			v1alpha1.GroupVersion.WithKind("GridZone"), v1alpha1.GroupVersion.WithKind("PowerProfile"),
		},
	} {
		for _, kind := range kinds {
			m.Add(kind, scope)
		}
	}
	return m
}

func (c *controller) leads() bool {
	select {
	case <-c.manager.Elected():
		return true
	default:
		return false
	}
}

func (c *controller) addZones(registry prometheus.Registerer) error {
	signals := signal.NewMetrics(time.Now)
	if err := registry.Register(signals); err != nil {
		return err
	}
	deps := signal.Deps{
		Keys:  keys{folder: signal.KeyFolder(c.options.Keys), getenv: os.Getenv},
		Calls: newCalls(c.direct, c.options.Namespace), Data: c.options.Data, Log: c.log, Metrics: signals,
	}
	c.zones = newZones(c.manager.GetClient(), c.objects.View, carbonOf(deps), priceOf(deps), c.log)
	if err := c.manager.Add(c.zones); err != nil {
		return err
	}
	return builder.ControllerManagedBy(c.manager).Named("gridzone").
		For(&v1alpha1.GridZone{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(c.zones.changes, handler.Funcs{GenericFunc: c.zones.handle})).
		Complete(c.zones)
}

func (c *controller) addProfiles(prometheus.Registerer) error {
	p := &profiles{client: c.manager.GetClient(), view: c.objects.View, now: time.Now, log: c.log}
	return builder.ControllerManagedBy(c.manager).Named("powerprofile").
		For(&v1alpha1.PowerProfile{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(p)
}

func (c *controller) addPolicies(prometheus.Registerer) error {
	p := newPolicies(c.manager.GetClient(), c.defaults, c.held.count, func(namespace string) *v1alpha1.ShadowStatus {
		return c.shadow.status(namespace)
	}, c.log)
	p.inherit = func(all []v1alpha1.EnergyPolicy) { c.shadow.inherit(all) }
	spec, whole := p.noticing(predicate.GenerationChangedPredicate{}), p.noticing(predicate.Funcs{})
	return builder.ControllerManagedBy(c.manager).Named("energypolicy").
		For(&v1alpha1.EnergyPolicy{}, builder.WithPredicates(spec)).
		Watches(&v1alpha1.EnergyPolicy{}, handler.EnqueueRequestsFromMapFunc(p.ofPolicy), builder.WithPredicates(spec)).
		Watches(&v1.Namespace{}, handler.EnqueueRequestsFromMapFunc(ofNamespace), builder.WithPredicates(whole)).
		Complete(p)
}

// addWork adds what follows Jobs and pods.
func (c *controller) addWork(registry prometheus.Registerer) error {
	m := c.manager
	c.shadow = newShadow(c.objects.View, c.leads, m.GetEventRecorder("kubenergy-controller"), c.metrics, c.log)
	c.shadow.signal = c.history.signal
	c.accounts = newAccounts(m.GetClient(), c.objects.View, c.history, c.leads, c.metrics, c.log)
	c.accounts.elected = m.Elected()
	if err := registry.Register(&cluster{
		client: m.GetClient(), view: c.objects.View, held: c.held, leads: c.leads, log: c.log,
	}); err != nil {
		return err
	}
	overdue := &releaser{
		client: c.direct, held: c.held, view: c.objects.View, clock: newServerClock(time.Now, c.direct),
		metrics: c.metrics, log: c.log,
	}
	for _, run := range []func(context.Context) error{
		c.objects.Run, overdue.run, c.shadow.run, c.accounts.run,
		func(ctx context.Context) error { return c.history.run(ctx, c.objects.View) },
		func(ctx context.Context) error { return c.follow(ctx, &batchv1.Job{}, c.jobs(), &c.synced) },
		func(ctx context.Context) error { return c.follow(ctx, &v1.Pod{}, c.pods(), &c.synced) },
		func(ctx context.Context) error { return c.follow(ctx, &v1.Namespace{}, c.namespaces(), &c.synced) },
		// They are not waited for: c.objects says whether they are there.
		func(ctx context.Context) error {
			return c.follow(ctx, &v1alpha1.GridZone{}, c.gridZones(), new(atomic.Int32))
		},
	} {
		if err := m.Add(everywhere(run)); err != nil {
			return err
		}
	}
	if c.central != nil {
		return m.Add(everywhere(func(ctx context.Context) error {
			return c.follow(ctx, &v1.Node{}, c.central.nodes.handler(), &c.central.nodesSynced)
		}))
	}
	return nil
}

// followed is the number of kinds that addWork follows and that are waited for.
const followed = 3

func (c *controller) addProbes(prometheus.Registerer) error {
	if err := c.manager.AddHealthzCheck("process", healthz.Ping); err != nil {
		return err
	}
	return c.manager.AddReadyzCheck("objects", func(*http.Request) error {
		if c.synced.Load() < followed || !c.objects.Synced() {
			return fmt.Errorf("waiting for the API server: Jobs, pods, namespaces, and the kinds of %s",
				v1alpha1.GroupVersion)
		}
		return nil
	})
}

// everywhere is a part that runs in every replica.
type everywhere func(context.Context) error

// Start implements [manager.Runnable].
func (run everywhere) Start(ctx context.Context) error { return run(ctx) }

// NeedLeaderElection implements [manager.LeaderElectionRunnable].
func (everywhere) NeedLeaderElection() bool { return false }

// follow tells a handler of all objects of a kind until ctx ends. It goes on trying for as long as the API server is
// away or refuses. Once the handler has been told of all that there were, synced is one more.
func (c *controller) follow(ctx context.Context, kind client.Object, h toolscache.ResourceEventHandler,
	synced *atomic.Int32,
) error {
	const retry = 5 * time.Second
	for told := ""; ; {
		registration, err := c.handle(ctx, kind, h)
		if err == nil {
			if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
				synced.Add(1)
			}
			<-ctx.Done()
			return nil
		}
		if err.Error() != told && ctx.Err() == nil {
			told = err.Error()
			c.log.Warn("watching: trying again", "kind", fmt.Sprintf("%T", kind), "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

func (c *controller) handle(ctx context.Context, kind client.Object,
	h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if _, pods := kind.(*v1.Pod); pods {
		err := c.manager.GetFieldIndexer().IndexField(ctx, kind, nodeIndex, podsByNode)
		if err != nil {
			return nil, err
		}
	}
	informer, err := c.manager.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	return informer.AddEventHandler(h)
}

func podsByNode(obj client.Object) []string {
	if p, ok := obj.(*v1.Pod); ok && p.Spec.NodeName != "" {
		return []string{p.Spec.NodeName}
	}
	return nil
}

// gone unwraps what an informer hands over of an object whose deletion it has missed.
func gone[T any](obj any) (t T, ok bool) {
	if missed, is := obj.(toolscache.DeletedFinalStateUnknown); is {
		obj = missed.Obj
	}
	t, ok = obj.(T)
	return t, ok
}

func (c *controller) jobs() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if j, ok := obj.(*batchv1.Job); ok {
				c.held.saw(j)
				c.central.saw(j)
				c.shadow.sawJob(j)
			}
		},
		UpdateFunc: func(_, obj any) {
			if j, ok := obj.(*batchv1.Job); ok {
				c.held.saw(j)
				c.central.saw(j)
			}
		},
		DeleteFunc: func(obj any) {
			if j, ok := gone[*batchv1.Job](obj); ok {
				c.held.lost(j)
				c.central.lost(j)
			}
		},
	}
}

func (c *controller) pods() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if p, ok := obj.(*v1.Pod); ok {
				c.accounts.saw(p)
				c.central.saw(p)
				c.shadow.sawPod(p)
			}
		},
		UpdateFunc: func(_, obj any) {
			if p, ok := obj.(*v1.Pod); ok {
				c.accounts.saw(p)
				c.central.saw(p)
			}
		},
		DeleteFunc: func(obj any) {
			if p, ok := gone[*v1.Pod](obj); ok {
				c.accounts.lost(p)
				c.central.lost(p)
			}
		},
	}
}

func (c *controller) namespaces() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			if n, ok := gone[*v1.Namespace](obj); ok {
				c.shadow.forget(n.Name)
				c.metrics.forget(n.Name)
			}
		},
	}
}

func (c *controller) gridZones() toolscache.ResourceEventHandler {
	saw := func(obj any) {
		if z, ok := obj.(*v1alpha1.GridZone); ok {
			c.history.sawZone(z, time.Now())
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: saw, UpdateFunc: func(_, obj any) { saw(obj) },
		DeleteFunc: func(obj any) {
			if z, ok := gone[*v1alpha1.GridZone](obj); ok {
				c.history.lostZone(z)
			}
		},
	}
}
