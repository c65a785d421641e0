// Package otlp pushes the metrics of a process to an OpenTelemetry collector. They are the same metrics that the
// process serves for scraping. The package is configured by the standard environment variables of OpenTelemetry,
// without which it does nothing.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

const lastPushWithin = 5 * time.Second

// Run pushes the gathered metrics every minute, or at the interval OTEL_METRIC_EXPORT_INTERVAL, and a last time
// when ctx is done. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the names of the service and the
// instance.
func Run(ctx context.Context, service string, gather prometheus.Gatherer, log *slog.Logger) error {
	if cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) == "" ||
		cmp.Or(os.Getenv("OTEL_METRICS_EXPORTER"), "otlp") != "otlp" ||
		strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil
	}
	const takes = "http/protobuf"
	p := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), takes)
	if p != takes {
		return fmt.Errorf("pushing metrics: OTEL_EXPORTER_OTLP_PROTOCOL is %q: want %s", p, takes)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.WarnContext(ctx, "Failed to push metrics", "error", err)
	}))
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return fmt.Errorf("pushing metrics: %w", err)
	}
	host, _ := os.Hostname() // an empty name is acceptable
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service),
			attribute.String("service.instance.id", host)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return fmt.Errorf("pushing metrics: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := metric.NewMeterProvider(metric.WithResource(about), metric.WithReader(metric.NewPeriodicReader(exporter,
		metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(gather))))))
	log.InfoContext(ctx, "Started pushing metrics")
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPushWithin)
	defer cancel()
	if err := provider.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("pushing metrics for the last time: %w", err)
	}
	return nil
}
