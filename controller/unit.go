package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubenergy/kubenergy/controller/access"
	"github.com/kubenergy/kubenergy/controller/agentless"
	"github.com/kubenergy/kubenergy/controller/budget"
	"github.com/kubenergy/kubenergy/controller/ingest"
	"github.com/kubenergy/kubenergy/controller/live"
	"github.com/kubenergy/kubenergy/controller/meter"
	"github.com/kubenergy/kubenergy/controller/server"
	"github.com/kubenergy/kubenergy/controller/signal"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/ledger/postgres"
	"github.com/kubenergy/kubenergy/ledger/sqlite"
	"github.com/kubenergy/kubenergy/policy"
)

// central is the part of the controller that takes batches, books them and answers questions. With an SQLite ledger
// it works without the API server as far as that goes: agents that were known go on delivering for ten minutes, those
// outside of the cluster for good. With PostgreSQL, a leader that cannot renew its Lease ends.
type central struct {
	store   *lateStore
	ledger  *ledger.Ledger
	live    *live.State
	gate    *access.Gate
	hosts   *access.HostTokens
	nodes   *nodeBook
	pods    *ingest.Directory
	batches *ingest.Handler
	rates   *rates
	agents  *agents

	nodesSynced atomic.Int32

	budgets *budget.Engine
	folder  *server.Folder // nil: there is none
	handler http.Handler
	tls     *tls.Config
	own     *selfSigned // nil: the certificate was given
	address string      // of the API; "0": nowhere
	log     *slog.Logger
}

// agentAccount is the service account of agents in the cluster.
const agentAccount = "kubenergy-agent"

// apiService is the name that the API's certificate is for, in our namespace.
const apiService = "kubenergy-controller"

// newCentral builds it; nil where there is nowhere to keep a ledger. The caller closes the ledger.
func newCentral(ctx context.Context, api *rest.Config, c *controller,
	registry prometheus.Registerer,
) (*central, error) {
	o := &c.options
	if o.State == "" && o.LedgerDSN == "" {
		return nil, nil
	}
	log := c.log
	u := &central{nodes: &nodeBook{}, agents: newAgents(time.Now), address: o.API, log: log}
	var err error
	if u.hosts, err = access.NewHostTokens(o.HostTokens, time.Now, log); err != nil {
		return nil, err
	}
	if u.gate, err = newGate(api, log, registry); err != nil {
		return nil, err
	}
	u.pods = ingest.NewDirectory(ingest.DirectoryOptions{Strategy: placedBy(c.objects.View), Now: time.Now})
	u.rates = &rates{view: c.objects.View, history: c.history, nodes: u.nodes, hosts: u.hosts, now: time.Now}
	u.store = openLate(ctx, func(ctx context.Context) (ledger.Store, error) { return openStore(ctx, o, log) }, log)
	u.ledger = ledger.New(u.store, ledger.Options{Retention: o.Keep, Now: time.Now, Log: log})
	for _, add := range []func() error{
		func() error { return u.addIngest(c, registry) },
		func() error { return u.addAPI(c, registry) },
		func() error { return u.addEstimates(api, c, registry) },
		func() error { return u.addBudgets(c, registry) },
	} {
		if err := add(); err != nil {
			return nil, errors.Join(err, u.ledger.Close())
		}
	}
	return u, nil
}

// newGate asks the API server with a client of its own, which has no limit of requests: the Gate has one.
func newGate(api *rest.Config, log *slog.Logger, registry prometheus.Registerer) (*access.Gate, error) {
	config := rest.CopyConfig(api)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	return access.NewGate(access.Options{
		Tokens: client.AuthenticationV1().TokenReviews(), Access: client.AuthorizationV1().SubjectAccessReviews(),
		Audience: access.Audience, Now: time.Now, Log: log, Registerer: registry,
	}), nil
}

func openStore(ctx context.Context, o *Options, log *slog.Logger) (ledger.Store, error) {
	if o.LedgerDSN != "" {
		return postgres.Open(ctx, o.LedgerDSN, postgres.Options{Log: log})
	}
	return sqlite.Open(ctx, filepath.Join(o.State, "ledger.db"), sqlite.Options{Log: log})
}

// placedBy returns what says which strategy placed a pod, "" if kube-scheduler did alone.
func placedBy(view func() *kube.View) func(*v1.Pod) string {
	return func(p *v1.Pod) string {
		work, _ := policy.ReadPod(p) // what makes no sense counts as not said
		_, settings := view().Settle(&work)
		if !settings.Enforced() || !policy.Serves(p.Spec.SchedulerName) {
			return ""
		}
		where, _, _ := strings.Cut(settings.Strategy(), "+")
		return where
	}
}

func (u *central) addIngest(c *controller, registry prometheus.Registerer) error {
	envelope := ingest.Nodes(c.objects.View, u.nodes.node, u.hosts, energy.Watts(c.options.NodeMaxPower))
	var err error
	u.batches, err = ingest.New(ingest.Config{
		Ledger: u.ledger, Gate: u.gate, Agents: u.hosts, AgentUser: "system:serviceaccount:" + c.options.Namespace +
			":" + agentAccount,
		Directory: u.pods, Ready: func() bool {
			return c.synced.Load() >= followed && u.nodesSynced.Load() > 0 &&
				c.objects.Synced()
		},
		Rates: u.rates.of, Envelope: envelope, Known: func(node string) bool { return u.nodes.node(node) != nil },
		Now: time.Now, Log: c.log, Registerer: registry,
	})
	if err != nil {
		return err
	}
	u.live = live.New(live.Options{
		Now: time.Now, Container: u.pods.Container,
		// A meter at the wall is held against the hardware too; how little a node may draw, ingest knows, as guests
		// draw less.
		Implausible: func(node string, power energy.Watts) bool {
			l := envelope(node)
			return l.Modelled && power > ingest.Tolerance*l.MaxPower || u.batches.Implausible(node)
		},
	})
	u.nodes.deleted = u.live.Forget
	u.ledger.OnBooked(u.live.Booked)
	u.ledger.OnBooked(u.agents.booked)
	return registry.Register(&ledgerMetrics{ledger: u.ledger, nodes: u.live.Nodes, now: time.Now})
}

// addEstimates adds the meters on the network and the estimate of what nodes without an agent use. Only who leads does
// either.
func (u *central) addEstimates(api *rest.Config, c *controller, registry prometheus.Registerer) error {
	o := &c.options
	estimates := agentless.Options{
		Nodes: c.listNodes, Pods: c.listPods, View: c.objects.View, HasAgent: u.agents.last,
		Idle: energy.IdleByRequests, Log: u.log,
		Book: func(ctx context.Context, b *batch.Batch) error { return u.batches.Local(ctx, b, true) },
		Permanent: func(err error) bool {
			return errors.Is(err, ingest.ErrRefused) || errors.Is(err, ledger.ErrOverlap) ||
				errors.Is(err, ledger.ErrPartly)
		},
	}
	if o.Meters != "" {
		config, err := meter.Load(o.Meters)
		if err != nil {
			return err
		}
		poller, err := meter.New(config, meter.Deps{
			Keys: keys{folder: signal.KeyFolder(o.Keys), getenv: os.Getenv}, Wall: u.live.Wall,
			Agent: u.live.AgentWatts, Log: u.log,
		})
		if err != nil {
			return err
		}
		estimates.Readings, estimates.Source = poller.Readings, poller.Source
		if err := errors.Join(registry.Register(poller), c.manager.Add(manager.RunnableFunc(poller.Run))); err != nil {
			return err
		}
	}
	if !o.Agentless {
		return nil
	}
	usage, err := agentless.NewMetricsServer(api, c.manager.GetHTTPClient())
	if err != nil {
		return err
	}
	estimates.Usage = usage.Usage
	estimator := agentless.New(estimates)
	return errors.Join(registry.Register(estimator), c.manager.Add(manager.RunnableFunc(estimator.Run)))
}

// addBudgets adds what acts on budgets; only who leads does.
func (u *central) addBudgets(c *controller, registry prometheus.Registerer) error {
	engine, err := budget.New(budget.Options{
		Ledger: u.ledger, Client: c.manager.GetClient(), Direct: c.direct, MaySuspend: budget.HoldsEnabled(c.direct),
		Ready:   func() bool { return c.synced.Load() >= followed },
		Webhook: c.options.Webhook, Hosts: c.options.Webhooks, Now: time.Now, Log: u.log, Registerer: registry,
	})
	if err != nil {
		return err
	}
	u.ledger.OnBooked(func(*ledger.Booking, ledger.Receipt) { engine.Booked() })
	u.budgets = engine
	return c.manager.Add(manager.RunnableFunc(engine.Run))
}

// listNodes returns the nodes of the cache: read only.
func (c *controller) listNodes(ctx context.Context) ([]v1.Node, error) {
	var all v1.NodeList
	err := c.manager.GetClient().List(ctx, &all, client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// listPods returns the pods of a node, from the cache: read only.
func (c *controller) listPods(ctx context.Context, node string) ([]v1.Pod, error) {
	var all v1.PodList
	err := c.manager.GetClient().List(ctx, &all, client.MatchingFields{nodeIndex: node}, client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// bookSidecar books what a sidecar tells of a node. It stands where no agent's batch does, or a node with both would
// count twice; and where it stands, nothing is estimated.
func (u *central) bookSidecar(ctx context.Context, b *batch.Batch) error {
	err := u.batches.Local(ctx, b, true)
	if err == nil {
		u.agents.hear(b.Stream.Node)
	}
	return err
}

// podUID returns the UID of a pod of the cache.
func (c *controller) podUID(namespace, name string) (string, bool) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var p v1.Pod
	err := c.manager.GetClient().Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &p)
	return string(p.UID), err == nil
}

// addAPI builds what answers, and the certificate that it answers with.
func (u *central) addAPI(c *controller, registry prometheus.Registerer) error {
	o := &c.options
	var recorded func([]ledger.Record)
	if o.CSV != "" {
		var err error
		if u.folder, err = server.NewFolder(server.FolderOptions{
			Dir: o.CSV, Now: time.Now, Log: u.log, Registerer: registry,
		}); err != nil {
			return err
		}
		u.ledger.OnBooked(u.folder.Booked)
		recorded = u.folder.Recorded
	}
	var err error
	u.handler, err = server.New(server.Config{
		Ledger: u.ledger, Live: u.live, Gate: u.gate, Batches: u.batches, View: c.objects.View,
		Client: c.manager.GetClient(), Recorded: recorded,
		Jobs: server.JobsConfig{Namespaces: o.Ingest},
		Sidecar: server.SidecarConfig{
			Book:    u.bookSidecar,
			Refused: func(err error) bool { return errors.Is(err, ingest.ErrRefused) },
			PodUID:  c.podUID, Leads: c.leads,
		},
		Now: time.Now, Log: u.log, Registerer: registry,
	})
	if err != nil || o.API == "0" {
		return err
	}
	name := apiService + "." + o.Namespace + ".svc"
	cert, key := o.APICert, o.APIKey
	if cert == "" {
		// localhost is for those who come through a forwarded port.
		names := append([]string{
			name, name + ".cluster.local", apiService + "." + o.Namespace, apiService, "localhost",
		}, o.APINames...)
		if u.own, err = signOnce(o.State, names, time.Now()); err != nil {
			return err
		}
		cert, key = u.own.certFile, u.own.keyFile
		told := &authority{client: c.direct, namespace: o.Namespace, own: u.own.authority, now: time.Now, log: u.log}
		if err := c.manager.Add(everywhere(told.run)); err != nil {
			return err
		}
	}
	config, files, err := server.Certificates(cert, key)
	if err != nil {
		return err
	}
	u.tls = config
	if err := c.manager.Add(files); err != nil {
		return err
	}
	// An SQLite file has one writer, which leads whatever Leases say. A database has several, one of which takes
	// batches.
	if o.LedgerDSN != "" && o.LeaderElect {
		u.relay(c, name)
	}
	return nil
}

// relay has requests passed on where another replica leads.
func (u *central) relay(c *controller, name string) {
	_, port, _ := net.SplitHostPort(c.options.API) // Validate has looked
	own := u.handler
	others := &relay{
		client: c.direct, namespace: c.options.Namespace, port: port, name: name, trust: publishedAuthorities,
		now: time.Now, log: u.log,
	}
	if c.options.APICA != "" {
		others.trust = func(context.Context, client.Client, string) (*x509.CertPool, error) {
			return authoritiesIn(c.options.APICA)
		}
	}
	u.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.leads() {
			own.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// run books and answers until ctx ends, and then closes the ledger.
func (u *central) run(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return u.store.run(groupCtx) })
	group.Go(func() error { return u.ledger.Run(groupCtx) })
	if u.folder != nil {
		group.Go(func() error { return u.folder.Run(groupCtx) })
	}
	if u.address != "0" {
		group.Go(func() error { return server.Serve(groupCtx, u.address, u.handler, u.tls, u.log) })
	}
	return errors.Join(group.Wait(), u.close())
}

func (u *central) close() error {
	if u == nil {
		return nil
	}
	if err := u.ledger.Close(); err != nil {
		return fmt.Errorf("closing the ledger: %w", err)
	}
	return nil
}

// saw and lost are told of every Job and pod.
func (u *central) saw(o client.Object) {
	if u == nil {
		return
	}
	switch o := o.(type) {
	case *v1.Pod:
		u.pods.Saw(o)
	case *batchv1.Job:
		u.pods.SawJob(o)
	}
	u.budgets.Saw(o)
}

func (u *central) lost(o client.Object) {
	if u == nil {
		return
	}
	switch o := o.(type) {
	case *v1.Pod:
		u.pods.Lost(o)
	case *batchv1.Job:
		u.pods.LostJob(o)
	}
	u.budgets.Lost(o)
}
