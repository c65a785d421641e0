package exposition

import (
	"bytes"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// newProcess returns the metrics of the agent's own process, as every Prometheus client shows them.
func newProcess() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(
		prometheus.NewProcessCollector(prometheus.ProcessCollectorOpts{}), //nolint:staticcheck // collectors links SQL
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "go_goroutines", Help: "Number of goroutines."},
			func() float64 { return float64(runtime.NumGoroutine()) }))
	return r
}

// process appends them to a page. What cannot be read is left out, and nothing else can fail: the page is in memory.
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
