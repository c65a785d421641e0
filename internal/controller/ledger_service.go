package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/budget"
	"github.com/kubenergy/kubenergy/internal/controller/forward"
	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/controller/live"
	"github.com/kubenergy/kubenergy/internal/controller/meter"
	"github.com/kubenergy/kubenergy/internal/controller/relay"
	"github.com/kubenergy/kubenergy/internal/controller/server"
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// ledgerService is the part of the controller that records batches and serves the HTTP API. With an SQLite ledger
// it continues to work without the API server: known agents in the cluster can deliver for ten minutes, and agents
// outside the cluster indefinitely. With PostgreSQL, a leader that cannot renew its Lease exits.
type ledgerService struct {
	store   *intake.LazyStore
	ledger  *ledger.Ledger
	live    *live.State
	gate    *access.Gate
	batches *intake.Handler
	meters  *meter.Poller // nil if no meters are configured
	budgets *budget.Engine
	folder  *server.Folder // nil if no CSV directory is configured
	handler http.Handler
	tls     *tls.Config
	leads   func() bool
	address string // address of the API; "0" if it is not served
	log     *slog.Logger
}

// agentAccount is the name of the service account of agents in the cluster.
const agentAccount = "kubenergy-agent"

// apiService is the name of the Service of the API, in the namespace of the controller. The certificate is issued
// for it.
const apiService = "kubenergy-controller"

// newUnit builds the ledger service. It returns nil if no ledger is configured. The caller must close the ledger.
func newUnit(ctx context.Context, api *rest.Config, p *app) (*ledgerService, error) {
	o := &p.options
	if !o.keepsLedger() {
		return nil, nil
	}
	u := &ledgerService{address: o.API, log: p.log}
	var err error
	if u.gate, err = newGate(api, p.log, p.registry); err != nil {
		return nil, err
	}
	u.store = intake.OpenLate(ctx, func(ctx context.Context) (ledger.Store, error) { return openStore(ctx, o, p.log) },
		p.log)
	u.ledger = ledger.New(u.store, ledger.Options{
		Retention: o.Keep, Log: p.log, Panicked: func() { panics.Count("ledger") },
	})
	u.ledger.OnBooked(p.workloads.Booked)
	u.ledger.OnBooked(p.agents.Booked)
	for _, add := range []func(*app) error{u.addIntake, u.addForward, u.addMeters, u.addBudgets, u.addAPI} {
		if err := add(p); err != nil {
			return nil, errors.Join(err, u.ledger.Close())
		}
	}
	return u, nil
}

// addForward adds the forwarder of bookings to the federation, which runs in the leader.
func (u *ledgerService) addForward(p *app) error {
	o := p.options.Forward
	if o.URL == "" {
		return nil
	}
	o.Cluster, o.Outbox, o.Log, o.Registerer = p.options.Cluster, u.store.Outbox, p.log, p.registry
	f, err := forward.New(o)
	if err != nil {
		return err
	}
	return p.manager.Add(manager.RunnableFunc(f.Run))
}

// newGate returns a Gate with its own client. The client has no rate limit, because the Gate limits its requests.
func newGate(api *rest.Config, log *slog.Logger, registry prometheus.Registerer) (*access.Gate, error) {
	config := rest.CopyConfig(api)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	return access.NewGate(access.Options{
		Tokens: client.AuthenticationV1().TokenReviews(), Access: client.AuthorizationV1().SubjectAccessReviews(),
		Now: time.Now, Log: log, Registerer: registry,
	}), nil
}

func openStore(ctx context.Context, o *Options, log *slog.Logger) (ledger.Store, error) {
	if o.LedgerDSN != "" {
		return postgres.Open(ctx, o.LedgerDSN, postgres.Options{Log: log})
	}
	return sqlite.Open(ctx, filepath.Join(o.State, "ledger.db"), sqlite.Options{Log: log})
}

// placedBy returns a function that returns the strategy that placed a pod, or "" for plain kube-scheduler.
func placedBy(view func() *kube.View) func(*v1.Pod) string {
	return func(p *v1.Pod) string {
		work, _ := policy.ReadPod(p) // invalid annotations are ignored
		_, settings := view().Settle(&work)
		if !settings.Enforced() || !policy.Serves(p.Spec.SchedulerName) {
			return ""
		}
		where, _, _ := strings.Cut(settings.Strategy(), "+")
		return where
	}
}

func (u *ledgerService) addIntake(p *app) error {
	envelope := intake.Nodes(p.objects.View, p.nodes.Node, p.hosts, energy.Watts(p.options.NodeMaxPower))
	u.batches = intake.New(intake.Config{
		Ledger: u.ledger, Gate: u.gate, Agents: p.hosts, AgentUser: "system:serviceaccount:" +
			p.options.agentNamespace() + ":" + agentAccount,
		PodIndex: p.directory, Ready: func() bool {
			return p.knowsWork() && p.nodesSynced.Load() > 0 && p.objects.Synced()
		},
		Rates: p.rates.Of, Envelope: envelope, Known: func(node string) bool { return p.nodes.Node(node) != nil },
		Members: p.members, Forward: p.options.Forward.URL != "",
		Findings: func(node string, all []string) { u.live.Found(node, all) },
		Power:    p.nodes.Power, Hardware: p.labels.Reported, Now: time.Now, Log: p.log, Registerer: p.registry,
	})
	u.live = live.New(live.Options{
		Now: time.Now, Container: p.directory.Container,
		// Wall meters are compared with the hardware, too. Only intake checks for implausibly low power, because
		// guests draw less than their hardware.
		Implausible: func(node string, power energy.Watts) bool {
			l := envelope(node, ledger.Seen{})
			return l.Modelled && power > intake.Tolerance*l.MaxPower || u.batches.Implausible(node)
		},
		Hottest: func(node string) energy.Celsius { return p.objects.View().Hottest(p.nodes.Node(node)) },
	})
	u.ledger.OnBooked(u.live.Booked)
	u.leads = p.leads
	return p.registry.Register(panics.Collector(p.log,
		&intake.LedgerMetrics{Ledger: u.ledger, Nodes: u.live.Nodes, Now: time.Now}))
}

// addMeters adds the meters on the network, which the leader reads.
func (u *ledgerService) addMeters(p *app) error {
	if p.options.Meters == "" {
		return nil
	}
	config, err := meter.Load(p.options.Meters)
	if err != nil {
		return err
	}
	u.meters, err = meter.New(config, meter.Deps{
		Keys: signal.KeyFolder(p.options.MeterKeys), Wall: u.live.Wall, Agent: u.live.AgentWatts, Log: p.log,
	})
	if err != nil {
		return err
	}
	return errors.Join(p.registry.Register(panics.Collector(p.log, u.meters)),
		p.manager.Add(manager.RunnableFunc(u.meters.Run)))
}

// bookEstimate records an estimate of a node.
func (u *ledgerService) bookEstimate(ctx context.Context, b *batch.Batch) error {
	return u.batches.Local(ctx, b, true)
}

// addBudgets adds the budget engine, which runs in the leader.
func (u *ledgerService) addBudgets(p *app) (err error) {
	var key []byte
	if file := p.options.WebhookKey; file != "" {
		if key, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("reading --budget-webhook-key-file: %w", err)
		}
		if key = bytes.TrimSpace(key); len(key) == 0 {
			return fmt.Errorf("--budget-webhook-key-file: %s is empty", file)
		}
	}
	u.budgets, err = budget.New(budget.Options{
		Ledger: u.ledger, Client: p.manager.GetClient(), Direct: p.direct, MaySuspend: budget.HoldsEnabled(p.direct),
		Ready: p.knowsWork, Webhook: p.options.Webhook, Key: key, Hosts: p.options.Webhooks,
		URLs: signal.KeyFolder(p.options.WebhookDir), TeamOf: p.teamOf, Now: time.Now, Log: p.log,
		Registerer: p.registry, Cluster: p.options.Cluster,
	})
	if err != nil {
		return err
	}
	u.ledger.OnBooked(func(*ledger.Booking, ledger.Receipt) { u.budgets.Booked() })
	return p.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return u.budgets.Run(p.beats.Loop(ctx, "budgets"))
	}))
}

// podUID returns the UID of a pod in the cache.
func (p *app) podUID(namespace, name string) (string, bool) {
	const timeout = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var pod v1.Pod
	err := p.manager.GetClient().Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &pod)
	return string(pod.UID), err == nil
}

// addAPI builds the handler of the API and its certificate.
func (u *ledgerService) addAPI(p *app) (err error) {
	o := &p.options
	var recorded func([]ledger.Record)
	if o.CSV != "" {
		if u.folder, err = server.NewFolder(server.FolderOptions{
			Dir: o.CSV, Now: time.Now, Log: p.log, Registerer: p.registry,
		}); err != nil {
			return err
		}
		u.ledger.OnBooked(u.folder.Booked)
		recorded = u.folder.Recorded
	}
	u.handler = server.New(server.Config{
		Ledger: u.ledger, Live: u.live, Gate: u.gate, Batches: u.batches,
		Bookings: http.HandlerFunc(u.batches.ServeMember), Cluster: o.Cluster, View: p.objects.View,
		Power: p.nodes.Power, Client: p.manager.GetClient(), Recorded: recorded,
		JobNamespaces: o.Ingest, Worlds: o.Worlds,
		Sidecar: server.SidecarConfig{
			// A report of a sidecar counts only if there is no batch of an agent, because a node with both would
			// count twice. It replaces the estimate.
			Book: func(ctx context.Context, b *batch.Batch) error {
				err := u.bookEstimate(ctx, b)
				if err == nil {
					p.agents.Heard(b.Stream.Node)
				}
				return err
			},
			Final: intake.Permanent, PodUID: p.podUID, Leads: p.leads,
		},
		Now: time.Now, Log: p.log, Registerer: p.registry,
	})
	if o.API == "0" {
		return nil
	}
	name := apiService + "." + o.Namespace + ".svc"
	cert, key := o.APICert, o.APIKey
	if cert == "" {
		// localhost is for clients that use port forwarding.
		names := append([]string{
			name, name + ".cluster.local", apiService + "." + o.Namespace, apiService, "localhost",
		}, o.APINames...)
		own, err := relay.SignOnce(o.State, names, time.Now())
		if err != nil {
			return err
		}
		cert, key = own.CertFile, own.KeyFile
		reported := &relay.Authority{
			Client: p.direct, Namespace: o.Namespace, AgentNamespace: o.agentNamespace(), Certificate: own,
			Now: time.Now, Log: p.log,
		}
		if err := p.manager.Add(p.kept("certificate", reported.Run)); err != nil {
			return err
		}
	}
	if u.tls, err = server.Certificates(cert, key, p.log); err != nil {
		return err
	}
	// An SQLite file has a single writer, which leads independently of Leases. With a database there may be several
	// replicas, and the leader accepts batches.
	if o.LedgerDSN != "" && o.LeaderElect {
		u.passOn(p, name)
	}
	return nil
}

// passOn forwards requests to the leader if another replica leads.
func (u *ledgerService) passOn(p *app, name string) {
	_, port, _ := net.SplitHostPort(p.options.API) // checked by Validate
	own, others := u.handler, relay.New(relay.Options{
		Client: p.direct, Namespace: p.options.Namespace, Lease: leaseName, Port: port, Name: name,
		Trust: p.options.APICA, Now: time.Now, Log: p.log,
	})
	u.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.leads() {
			own.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// run runs the ledger and the API until ctx is done, and then closes the ledger.
func (u *ledgerService) run(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return panics.Keep(groupCtx, u.log, "ledger", "opening the ledger", u.store.Run) })
	group.Go(func() error { return u.ledger.Run(groupCtx) })
	group.Go(func() error {
		return panics.Keep(groupCtx, u.log, "live", "storing the power of owners", func(ctx context.Context) error {
			u.live.Keep(ctx, u.store, u.leads, u.log)
			return nil
		})
	})
	if u.folder != nil {
		group.Go(func() error { return panics.Keep(groupCtx, u.log, "folder", "writing CSV files", u.folder.Run) })
	}
	if u.address != "0" {
		group.Go(func() error { return server.Serve(groupCtx, u.address, u.handler, u.tls, u.log) })
	}
	return errors.Join(group.Wait(), u.close())
}

func (u *ledgerService) close() error {
	if u == nil {
		return nil
	}
	if err := u.ledger.Close(); err != nil {
		return fmt.Errorf("closing the ledger: %w", err)
	}
	return nil
}
