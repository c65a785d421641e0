package karmada

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubenergy/kubenergy/kube/panics"
)

var (
	registry = newRegistry()
	answers  = promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Name: "kubenergy_karmada_answers_total", Help: "Answers to karmada-scheduler, by our opinion of the cluster.",
	}, []string{"opinion"})
	placements = promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Name: "kubenergy_karmada_placements_total",
		Help: "Bindings with schedulerName: kubenergy that were to be placed, by the reason of their condition.",
	}, []string{"reason"})
	moves = promauto.With(registry).NewCounter(prometheus.CounterOpts{
		Name: "kubenergy_karmada_moves_total", Help: "Running Jobs that Karmada was asked to move.",
	})
	frees = promauto.With(registry).NewCounter(prometheus.CounterOpts{
		Name: "kubenergy_karmada_frees_total", Help: "Suspended bindings that were let go.",
	})
)

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(panics.Metrics())
	return r
}

// serveMetrics serves /metrics and /healthz until ctx ends.
func serveMetrics(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
