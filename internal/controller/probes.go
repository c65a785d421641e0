package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
)

// Limits of open connections to the servers of probes and metrics.
const maxScrapes, maxScrapesPerPeer = 512, 32

// probes returns the handler of /healthz and /readyz. began is the start time of the process.
func (p *app) probes(began time.Time) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {
			"loops": func(*http.Request) error { return p.beats.Check() },
			"ledger": func(*http.Request) error {
				if p.unit == nil {
					return nil
				}
				return p.unit.ledger.Stuck()
			},
		},
		"/readyz": {
			"objects": func(*http.Request) error {
				if p.knowsWork() && p.objects.Synced() {
					return nil
				}
				return fmt.Errorf("waiting for the API server to list Jobs, CronJobs, pods, namespaces and "+
					"the kinds of %s", v1alpha1.GroupVersion)
			},
			"gridzones": func(r *http.Request) error {
				if time.Since(began) > firstSignals {
					return nil
				}
				return zonesRead(r.Context(), p.manager.GetClient())
			},
		},
	} {
		h := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, h)
		mux.Handle(path+"/", h)
	}
	return mux
}

// addMetrics adds the server of /metrics. Its certificate is self-signed and only provides encryption.
func (p *app) addMetrics() error {
	if p.options.MetricsAddress == "0" {
		return nil
	}
	filter, err := filters.WithAuthenticationAndAuthorization(p.manager.GetConfig(), p.manager.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("protecting /metrics: %w", err)
	}
	h, err := filter(p.manager.GetLogger(), promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError,
	}))
	if err != nil {
		return fmt.Errorf("protecting /metrics: %w", err)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	pair, errPair := tls.X509KeyPair(cert, key)
	if err = errors.Join(err, errPair); err != nil {
		return fmt.Errorf("creating a certificate for /metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", h)
	return p.serve("metrics", p.options.MetricsAddress, mux, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	})
}

// serve adds a server to the manager, which starts servers before it waits for the API server. The manager's own
// servers do not limit connections. The address "0" disables the server.
func (p *app) serve(name, address string, h http.Handler, config *tls.Config) error {
	if address == "0" {
		return nil
	}
	l, err := daemon.Listen(address, maxScrapes, maxScrapesPerPeer)
	if err != nil {
		return fmt.Errorf("serving %s: %w", name, err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return p.manager.Add(&manager.Server{
		Name: name, Server: daemon.NewServer(h, p.log), Listener: l, ShutdownTimeout: new(daemon.ShutdownTimeout),
	})
}

// firstSignals is the maximum delay of readiness if GridZones have no status. Agents reach the ledger only through
// ready replicas, so a failure to write a status must not keep them away.
const firstSignals = time.Minute

// zonesRead returns an error until each GridZone has its first status, even if the status reports failing sources.
// Jobs are not held before, so `helm install --wait` returns once they can be.
func zonesRead(ctx context.Context, c client.Reader) error {
	var zones v1alpha1.GridZoneList
	if err := c.List(ctx, &zones); err != nil {
		return fmt.Errorf("listing GridZones: %w", err)
	}
	for i := range zones.Items {
		if z := &zones.Items[i]; len(z.Status.Conditions) == 0 {
			return fmt.Errorf("waiting for the first status of GridZone %s", z.Name)
		}
	}
	return nil
}
