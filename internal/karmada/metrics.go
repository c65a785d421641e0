package karmada

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubenergy/kubenergy/internal/daemon"
)

var (
	with    = promauto.With(legacyregistry.Registerer()) // also used by the hold loop
	answers = with.NewCounterVec(prometheus.CounterOpts{
		Name: "kubenergy_karmada_answers_total", Help: "Responses to karmada-scheduler by opinion on the cluster.",
	}, []string{"opinion"})
	placements = with.NewCounterVec(prometheus.CounterOpts{
		Name: "kubenergy_karmada_placements_total",
		Help: "Scheduled bindings with schedulerName: kubenergy by the reason of their condition.",
	}, []string{"reason"})
	moves = with.NewCounter(prometheus.CounterOpts{
		Name: "kubenergy_karmada_moves_total", Help: "Running Jobs that were rescheduled to another cluster.",
	})
	frees = with.NewCounter(prometheus.CounterOpts{
		Name: "kubenergy_karmada_frees_total", Help: "Suspended bindings that were released.",
	})
)

// serveMetrics serves /metrics and /healthz until ctx is done.
func serveMetrics(ctx context.Context, l net.Listener, healthz http.Handler, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", legacyregistry.Handler())
	mux.Handle("GET /healthz", healthz)
	return daemon.Serve(ctx, l, daemon.NewServer(mux, log))
}
