package exposition

import (
	"bytes"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// newProcess returns a gatherer of the standard process metrics.
func newProcess() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(
		prometheus.NewProcessCollector(prometheus.ProcessCollectorOpts{}), //nolint:staticcheck // collectors links SQL
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "go_goroutines", Help: "Number of goroutines."},
			func() float64 { return float64(runtime.NumGoroutine()) }))
	return r
}

// process appends the process metrics. Metrics that cannot be read are omitted. There are no other errors, because
// the page is in memory.
func (t *text) process(from prometheus.Gatherer) {
	families, _ := from.Gather()
	page := bytes.NewBuffer(t.b)
	for _, family := range families {
		if t.openMetrics {
			_, _ = expfmt.MetricFamilyToOpenMetrics(page, family)
		} else {
			_, _ = expfmt.MetricFamilyToText(page, family)
		}
	}
	t.b = page.Bytes()
}
