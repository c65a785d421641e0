package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// registry contains one metric of each type that KubEnergy uses.
func registry(t *testing.T) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewRegistry()
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubenergy_decisions_total"}, []string{"action"})
	held := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubenergy_held"})
	lateness := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "kubenergy_release_lateness_seconds", Buckets: []float64{1, 60},
	})
	misses := prometheus.NewSummary(prometheus.SummaryOpts{Name: "kubenergy_forecast_error_ratio"})
	r.MustRegister(decisions, held, lateness, misses)
	decisions.WithLabelValues("hold").Add(7)
	held.Set(3)
	lateness.Observe(2)
	misses.Observe(0.25)
	return r
}

// receiver is a collector that sends each received request to a channel.
func receiver(t *testing.T, got chan<- *collector.ExportMetricsServiceRequest) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if q.Header.Get("Content-Encoding") == "gzip" {
			var z *gzip.Reader
			if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
				body, err = io.ReadAll(z)
			}
		}
		var sent collector.ExportMetricsServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil || q.URL.Path != "/v1/metrics" || q.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s: %v", q.URL.Path, q.Header.Get("Content-Type"), err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		select {
		case got <- &sent:
		default:
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestPushesWhatIsScraped(t *testing.T) {
	got := make(chan *collector.ExportMetricsServiceRequest, 1)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver(t, got).URL)
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "20") // in milliseconds
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.namespace.name=kubenergy-system")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, "kubenergy-test", registry(t), slog.New(slog.DiscardHandler)) }()
	var sent *collector.ExportMetricsServiceRequest
	select {
	case sent = <-got:
	case <-time.After(time.Minute):
		t.Fatal("no metrics were pushed")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	about := map[string]string{}
	of := map[string]*metrics.Metric{}
	for _, r := range sent.GetResourceMetrics() {
		for _, a := range r.GetResource().GetAttributes() {
			about[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, s := range r.GetScopeMetrics() {
			for _, m := range s.GetMetrics() {
				of[m.GetName()] = m
			}
		}
	}
	if about["service.name"] != "kubenergy-test" || about["k8s.namespace.name"] != "kubenergy-system" {
		t.Errorf("the resource attributes are %v", about)
	}
	counter := of["kubenergy_decisions_total"].GetSum().GetDataPoints()
	if len(of) != 4 || len(counter) != 1 || counter[0].GetAsDouble() != 7 ||
		counter[0].GetAttributes()[0].GetValue().GetStringValue() != "hold" {
		t.Errorf("pushed %v", of)
	}
	if g := of["kubenergy_held"].GetGauge().GetDataPoints(); len(g) != 1 || g[0].GetAsDouble() != 3 {
		t.Errorf("the pushed gauge is %v", g)
	}
	h := of["kubenergy_release_lateness_seconds"].GetHistogram().GetDataPoints()
	if len(h) != 1 || h[0].GetSum() != 2 || len(h[0].GetBucketCounts()) != 3 || h[0].GetBucketCounts()[1] != 1 {
		t.Errorf("the pushed histogram is %v", h)
	}
	if s := of["kubenergy_forecast_error_ratio"].GetSummary().GetDataPoints(); len(s) != 1 || s[0].GetSum() != 0.25 ||
		s[0].GetCount() != 1 {
		t.Errorf("the pushed summary is %v", s)
	}
}

// TestUnreachable verifies that an unreachable collector is logged, and neither stops the process nor delays its
// termination.
func TestUnreachable(t *testing.T) {
	var b bytes.Buffer
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:1/v1/metrics")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100") // in milliseconds
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // only the last push is performed
	began := time.Now()
	err := Run(ctx, "kubenergy-test", registry(t), slog.New(slog.NewTextHandler(&b, nil)))
	if err == nil || !strings.Contains(err.Error(), "for the last time") || time.Since(began) > 2*lastPushWithin {
		t.Errorf("after %v: %v, logged %s", time.Since(began), err, &b)
	}
}

func TestOff(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
	}{
		"nothing set":  {nil, ""},
		"switched off": {map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "True"}, ""},
		"no exporter":  {map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_METRICS_EXPORTER": "prometheus"}, ""},
		"another protocol": {
			map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			`OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": want http/protobuf`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tc.env {
				t.Setenv(k, v)
			}
			// Run returns immediately
			err := Run(t.Context(), "test", prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
