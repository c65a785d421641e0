package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/cached"
	"github.com/kubenergy/kubenergy/internal/controller/estimate"
	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/controller/learn"
	"github.com/kubenergy/kubenergy/internal/controller/meter"
	"github.com/kubenergy/kubenergy/internal/controller/release"
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/controller/status"
	"github.com/kubenergy/kubenergy/internal/controller/zone"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// app contains the components that Run runs, and their shared dependencies. The components have no reference to it.
type app struct {
	options  Options
	log      *slog.Logger
	registry prometheus.Registerer
	manager  manager.Manager
	direct   client.Client // reads from the API server, not from a cache
	objects  *kube.Objects

	directory *intake.PodIndex // index of pods; nil without a ledger
	nodes     intake.NodeBook
	hosts     *access.HostTokens
	members   access.Members
	history   *zone.History
	rates     *zone.Rates
	held      *release.Held
	shadow    *status.Shadow
	agents    *estimate.Agents
	workloads *estimate.Workloads
	labels    *status.NodeLabels // nil if nodes are not labelled
	unit      *ledgerService     // nil if no ledger is configured

	beats *daemon.Heartbeats // heartbeats of the loops in kept

	synced, nodesSynced atomic.Int32 // number of followed kinds that have synced
}

// followed is the number of kinds that must sync: Jobs, CronJobs, pods and namespaces.
const followed = 4

// reporter is the name of the controller in events.
const reporter = "kubenergy-controller"

func (p *app) leads() bool {
	select {
	case <-p.manager.Elected():
		return true
	default:
		return false
	}
}

// knowsWork reports whether Jobs, CronJobs, pods and namespaces have synced.
func (p *app) knowsWork() bool { return p.synced.Load() >= followed }

// addParts adds all components to the manager.
func (p *app) addParts(ctx context.Context, api *rest.Config) (err error) {
	p.history, p.held = zone.NewHistory(), release.NewHeld()
	p.agents = estimate.NewAgents(time.Now)
	if p.hosts, err = access.NewHostTokens(p.options.HostTokens, time.Now, p.log); err != nil {
		return err
	}
	if p.members, err = access.LoadMembers(p.options.Members, p.options.Cluster); err != nil {
		return err
	}
	p.rates = &zone.Rates{
		View: p.objects.View, History: p.history, Node: p.nodes.Node, Hosts: p.hosts, Members: p.members,
	}
	p.shadow = status.NewShadow(status.ShadowOptions{
		View: p.objects.View, CronJob: p.held.CronJob, Leads: p.leads, Events: p.manager.GetEventRecorder(reporter),
		Signal: func() string { return zone.Signal(p.objects.View()) }, Log: p.log, Registerer: p.registry,
	})
	p.workloads = estimate.NewWorkloads(estimate.WorkloadOptions{
		Client: p.manager.GetClient(), View: p.objects.View, Node: p.nodes.Node, Rates: p.rates.Of, Leads: p.leads,
		Now: time.Now, Log: p.log, Registerer: p.registry,
	})
	if p.options.LabelNodes {
		p.labels = &status.NodeLabels{
			Client: p.direct, Node: p.nodes.Node, View: p.objects.View, Leads: p.leads, Log: p.log,
		}
		if err := p.manager.Add(p.kept("labels", p.labels.Run)); err != nil {
			return err
		}
	}
	if p.unit, err = newUnit(ctx, api, p); err != nil {
		return err
	}
	return errors.Join(p.addEstimator(api), p.addReconcilers(), p.addRunners(),
		p.serve("probes", p.options.ProbeAddress, p.probes(time.Now()), nil), p.addMetrics())
}

// addEstimator adds the estimator of nodes without an agent, which runs in the leader. Estimates count in the
// metrics of workloads even if they are not recorded in the ledger.
func (p *app) addEstimator(api *rest.Config) error {
	o := estimate.Options{
		Nodes: p.listNodes, Pods: p.listPods, View: p.objects.View, HasAgent: p.agents.Last,
		Clock: time.Now, Uptime: meter.Uptime, Log: p.log, Book: p.workloads.Estimated,
	}
	if p.unit != nil && p.unit.meters != nil {
		o.Readings = p.unit.meters.Readings
	}
	if p.unit != nil && p.options.Agentless {
		usage, err := estimate.NewMetricsServer(api, p.manager.GetHTTPClient())
		if err != nil {
			return err
		}
		o.Usage, o.Book, o.Permanent, o.Registerer = usage.Usage, p.unit.bookEstimate, intake.Permanent, p.registry
	}
	return p.manager.Add(manager.RunnableFunc(p.kept("estimate", estimate.New(o).Run)))
}

// listNodes returns the nodes in the cache. The caller must not modify them.
func (p *app) listNodes(ctx context.Context) ([]v1.Node, error) {
	var all v1.NodeList
	err := p.manager.GetClient().List(ctx, &all, client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// listPods returns the pods of a node in the cache. The caller must not modify them.
func (p *app) listPods(ctx context.Context, node string) ([]v1.Pod, error) {
	var all v1.PodList
	err := p.manager.GetClient().List(ctx, &all, client.MatchingFields{cached.NodeIndex: node},
		client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// teamOf calls [policy.Rules.TeamOf] with the current rules.
func (p *app) teamOf(namespace, named string) string {
	return p.objects.View().TeamOf(namespace, named)
}

// addReconcilers adds the reconcilers that write statuses. They run in the leader.
func (p *app) addReconcilers() error {
	signals := signal.NewMetrics(time.Now)
	deps := signal.Deps{
		Keys:  zone.Keys{KeyFolder: signal.KeyFolder(p.options.Keys)},
		Calls: zone.NewCalls(p.direct, p.options.Namespace), Data: p.options.Data, Clock: time.Now, Log: p.log,
		Metrics: signals,
	}
	if p.unit != nil {
		deps.States = p.unit.store
	}
	api := p.manager.GetClient()
	return errors.Join(
		p.registry.Register(panics.Collector(p.log, signals)), p.registry.Register(panics.Metrics()),
		zone.New(api, p.objects.View, deps).SetUp(p.manager),
		(&status.Profiles{Client: api, View: p.objects.View, Now: time.Now}).SetUp(p.manager),
		status.NewPolicies(status.PolicyOptions{
			Client: api, Defaults: p.objects.Defaults, Held: p.held.Count, Shadow: p.shadow, Now: time.Now, Log: p.log,
		}).SetUp(p.manager),
	)
}

// addRunners adds the loops that run in every replica, and the event handlers of the components.
func (p *app) addRunners() error {
	bindings, errBindings := dynamic.NewForConfig(p.manager.GetConfig())
	cluster, err := kubernetes.NewForConfig(p.manager.GetConfig())
	if err = errors.Join(errBindings, err); err != nil {
		return fmt.Errorf("building clients: %w", err)
	}
	karmada := func() bool {
		_, err := cluster.Discovery().ServerResourcesForGroupVersion(kube.Bindings.GroupVersion().String())
		return err == nil
	}
	overdue := release.New(release.Options{
		Client: cluster, Held: p.held, View: p.objects.View, Clock: time.Now, Log: p.log, Registerer: p.registry,
		Leads: p.leads, Events: p.manager.GetEventRecorder(reporter), NoScheduler: func(ctx context.Context) bool {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			why, err := kube.Absent(ctx, cluster, v1alpha1.SystemNamespace, kube.Scheduler, time.Now())
			return why != "" && err == nil
		},
	})
	runTimes := &learn.RunTimes{
		Client: p.direct, Leads: func() bool { return p.leads() && p.knowsWork() }, Now: time.Now, Log: p.log,
	}
	watchers := []watcher{p.held, p.workloads, runTimes}
	if p.unit != nil {
		watchers = append(watchers, p.directory)
	}
	each := func(notify func(watcher, client.Object)) func(client.Object) {
		return func(o client.Object) {
			for _, w := range watchers {
				panics.Survive(p.log, "objects", "handling an event of an object", func() { notify(w, o) })
			}
		}
	}
	work := cached.Handler(p.shadow.Created, each(watcher.Saw), each(watcher.Lost))
	follow := func(kind client.Object, h toolscache.ResourceEventHandler, synced *atomic.Int32) everywhere {
		return func(ctx context.Context) error { return cached.Follow(ctx, p.manager, kind, h, synced, p.log) }
	}
	err = errors.Join(p.registry.Register(panics.Collector(p.log, &estimate.NodePower{
		Nodes: p.listNodes, Pods: p.listPods, View: p.objects.View, Held: p.held, Leads: p.leads, Log: p.log,
	})))
	for _, run := range []everywhere{
		func(ctx context.Context) error { return p.objects.Run(p.beats.Loop(ctx, "objects")) },
		p.kept("overdue", overdue.Run), p.kept("overdue", overdue.Warn),
		p.kept("bindings", func(ctx context.Context) error {
			return release.Bindings(ctx, bindings, karmada, p.held, p.log)
		}),
		p.kept("shadow", p.shadow.Run), p.kept("run times", runTimes.Run),
		p.kept("account", p.workloads.Run), p.kept("history", func(ctx context.Context) error {
			return p.history.Run(ctx, p.objects.View)
		}),
		follow(&batchv1.Job{}, work, &p.synced), follow(&v1.Pod{}, work, &p.synced),
		follow(&batchv1.CronJob{}, cached.Handler(nil, p.held.SawCronJob, p.held.LostCronJob), &p.synced),
		follow(&v1.Namespace{}, cached.Handler(nil, nil, func(n *v1.Namespace) {
			p.shadow.Forget(n.Name)
			p.workloads.Forget(n.Name)
		}), &p.synced),
		follow(&v1.Node{}, cached.Handler(nil, p.nodes.Saw, func(n *v1.Node) {
			p.nodes.Lost(n)
			if p.unit != nil {
				p.unit.live.Forget(n.Name)
			}
		}), &p.nodesSynced),
	} {
		err = errors.Join(err, p.manager.Add(run))
	}
	return err
}

// watcher is a component that receives every Job and pod that is added, updated or deleted.
type watcher interface {
	Saw(o client.Object)
	Lost(o client.Object)
}

// kept returns a loop that restarts after a panic and reports heartbeats.
func (p *app) kept(part string, run func(context.Context) error) everywhere {
	return func(ctx context.Context) error {
		return panics.Keep(p.beats.Loop(ctx, part), p.log, part, "a loop", run)
	}
}

// everywhere is a runnable that runs in every replica.
type everywhere func(context.Context) error

// Start implements [manager.Runnable].
func (run everywhere) Start(ctx context.Context) error { return run(ctx) }

// NeedLeaderElection implements [manager.LeaderElectionRunnable].
func (everywhere) NeedLeaderElection() bool { return false }
