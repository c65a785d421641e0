package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/cached"
	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/otlp"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// leaseName is the name of the Lease for leader election.
const leaseName = "kubenergy-controller"

// Run runs the controller until ctx is done. It returns an error if the controller cannot start or loses its Lease.
func Run(ctx context.Context, api *rest.Config, o Options, log *slog.Logger) error {
	p, err := build(ctx, api, o, log, metrics.Registry)
	if err != nil {
		return err
	}
	if err := p.manager.Add(p.kept("otlp", func(ctx context.Context) error {
		if err := otlp.Run(ctx, leaseName, metrics.Registry, log); err != nil {
			log.ErrorContext(ctx, "Failed to push metrics", "error", err) // they can still be scraped
		}
		return nil
	})); err != nil {
		return err
	}
	return p.run(ctx)
}

// run runs all components until ctx is done or one of them stops.
func (p *app) run(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	if p.unit != nil {
		// The ledger service works without the API server, but the manager waits for it.
		group.Go(func() error { return p.unit.run(groupCtx) })
	}
	group.Go(func() error {
		if err := p.manager.Start(groupCtx); err != nil {
			return err
		}
		return context.Canceled // stops everything else
	})
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// countPanics counts panics of reconcilers, which controller-runtime recovers.
var countPanics = sync.OnceFunc(func() {
	count := func(context.Context, any) { panics.Note("reconcile") }
	utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, count)
})

// build builds the dependencies of all components, and the components.
func build(ctx context.Context, api *rest.Config, o Options, log *slog.Logger,
	registry prometheus.Registerer,
) (*app, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	countPanics()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	p := &app{options: o, log: log, registry: registry, beats: cmp.Or(o.Beats, &daemon.Heartbeats{})}
	var err error
	// The view has watches of its own instead of the manager's cache, which decodes a list as a whole and never syncs
	// without a kind or permission. Objects decodes one object at a time, so that an invalid one does not hide the
	// others, and treats kinds that are missing or forbidden as absent. Deadlines (P1) depend on this.
	if p.objects, err = kube.NewObjects(api, log); err != nil {
		return nil, err
	}
	// The defaults without a policy are the same as those of the scheduler.
	defaults, found := policy.AliasEnvironment(policy.ControllerProgram, os.Environ(), os.ReadFile, policy.BuiltIn())
	for _, f := range found {
		log.Warn("Invalid environment variable", "warning", f.String())
	}
	defaults.AnyPower = o.AnyPower
	p.objects.Defaults = defaults
	saw := func(*v1.Pod) {} // receives each pod before it is trimmed
	if o.keepsLedger() {
		p.directory = intake.NewPodIndex(intake.PodIndexOptions{
			Strategy: placedBy(p.objects.View), TeamOf: p.teamOf, Group: o.Group, Now: time.Now,
		})
		saw = func(pod *v1.Pod) { p.directory.Saw(pod) }
	}
	if p.manager, err = manager.New(api, managerOptions(o, scheme, saw, log)); err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	if p.direct, err = client.New(api, client.Options{
		Scheme: scheme, Mapper: p.manager.GetRESTMapper(), HTTPClient: p.manager.GetHTTPClient(),
	}); err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	if err := p.addParts(ctx, api); err != nil {
		return nil, errors.Join(fmt.Errorf("building the controller: %w", err), p.unit.close())
	}
	return p, nil
}

func managerOptions(o Options, scheme *runtime.Scheme, saw func(*v1.Pod), log *slog.Logger) manager.Options {
	return manager.Options{
		Scheme: scheme, Logger: logr.FromSlogHandler(log.Handler()), Cache: cached.Options(saw, log),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper(), nil },
		LeaderElection: elects(&o, log), LeaderElectionID: leaseName, LeaderElectionNamespace: o.Namespace,
		LeaderElectionReleaseOnCancel: true, // the process exits when Run returns
		HealthProbeBindAddress:        "0",  // see serve
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{
			RecoverPanic: new(true),
			// CRDs may be installed and permissions granted after the controller has started. Wait instead of
			// restarting.
			CacheSyncTimeout: 365 * 24 * time.Hour,
			// Tests run two managers in one process.
			SkipNameValidation: new(true),
		},
	}
}

// elects reports whether replicas elect a leader. An SQLite file is locked by the single process that uses it, so a
// Lease adds nothing. It would even end that process while the API server cannot renew the Lease, although agents
// could still deliver batches.
func elects(o *Options, log *slog.Logger) bool {
	if o.LeaderElect && o.State != "" && o.LedgerDSN == "" {
		log.Info("Leader election disabled, the SQLite ledger permits a single replica")
		return false
	}
	return o.LeaderElect
}

// mapper returns a RESTMapper with the kinds that the controller uses. Discovery would require the API server to be
// available and the CRDs to be installed before anything is built. Without discovery, the controller starts in any
// case and retries kinds that are missing.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for scope, kinds := range map[meta.RESTScope][]schema.GroupVersionKind{
		meta.RESTScopeNamespace: {
			v1.SchemeGroupVersion.WithKind("Pod"), v1.SchemeGroupVersion.WithKind("ConfigMap"),
			batchv1.SchemeGroupVersion.WithKind("Job"), batchv1.SchemeGroupVersion.WithKind("CronJob"),
			coordinationv1.SchemeGroupVersion.WithKind("Lease"), eventsv1.SchemeGroupVersion.WithKind("Event"),
			v1alpha1.GroupVersion.WithKind("EnergyPolicy"), v1alpha1.GroupVersion.WithKind("EnergyBudget"),
			v1alpha1.GroupVersion.WithKind("JobProfile"),
		},
		meta.RESTScopeRoot: {
			v1.SchemeGroupVersion.WithKind("Node"), v1.SchemeGroupVersion.WithKind("Namespace"),
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
