package server

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/controller/instrument"
)

// counted contains the metrics of requests. The number of series is bounded by the number of routes and statuses.
type counted struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newCounted(registry prometheus.Registerer) *counted {
	with := instrument.With(registry)
	return &counted{
		requests: with.Counters("kubenergy_api_requests_total", "Number of HTTP requests, by route and status code.",
			"method", "route", "code"),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubenergy_api_request_seconds", Help: "Duration of HTTP requests in seconds, by route.",
			Buckets: []float64{.001, .005, .025, .1, .3, 1, 3, 10, 30},
		}, []string{"method", "route"}),
	}
}

// of returns a handler that counts the requests of a route. Its response writer must be a *seen.
func (c *counted) of(rt *route, next http.Handler) http.Handler {
	seconds := c.seconds.WithLabelValues(rt.method, rt.path)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		defer func() {
			status := cmp.Or(w.(*seen).status, http.StatusInternalServerError) // panic, or client disconnected
			c.requests.WithLabelValues(rt.method, rt.path, strconv.Itoa(status)).Inc()
			seconds.Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}
