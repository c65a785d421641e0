package exposition

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// pageEncoder encodes metric families one after another. A family is encoded in parts of at most maxPart metrics, which
// are reused for the next part and are not checked for consistency, so that a page costs little more than its encoding.
type pageEncoder struct {
	openMetrics bool
	text        *bytes.Buffer
	size        int              // of the last page
	node        []*dto.LabelPair // of all metrics
	family      dto.MetricFamily // Help is nil once its first part has been encoded
}

const maxPart = 256

// newRegistry returns the registry of the metrics that are collected for each scrape by client_golang.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		prometheus.NewProcessCollector(prometheus.ProcessCollectorOpts{}), //nolint:staticcheck // collectors links SQL
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "go_goroutines", Help: "Number of goroutines."},
			func() float64 { return float64(runtime.NumGoroutine()) }))
	return r
}

// page returns the current metrics. Metrics that cannot be collected are omitted.
func (e *Exporter) page(openMetrics bool) []byte {
	collected, _ := e.registry.Gather()
	e.mu.Lock()
	defer e.mu.Unlock()
	p := &e.encoder
	p.openMetrics, p.text = openMetrics, bytes.NewBuffer(make([]byte, 0, p.size+p.size/16))
	e.collectNode(p)
	e.collectStatus(p)
	e.collectBoards(p)
	for k := range kindOther {
		p.consumers(k, e.consumers)
	}
	p.consumers(kindOther, []*consumer{&e.other})
	p.consumers(kindEnded, []*consumer{&e.ended})
	p.flush()
	for _, family := range collected {
		p.encode(family)
	}
	if openMetrics {
		_, _ = expfmt.FinalizeOpenMetrics(p.text)
	}
	page := p.text.Bytes()
	p.size, p.text = len(page), nil
	return page
}

// encode appends a family to the page. Writing to memory cannot fail.
func (p *pageEncoder) encode(family *dto.MetricFamily) {
	if p.openMetrics {
		_, _ = expfmt.MetricFamilyToOpenMetrics(p.text, family)
	} else {
		_, _ = expfmt.MetricFamilyToText(p.text, family)
	}
}

// head starts a metric family: a counter if the name ends with _total, otherwise a gauge.
func (p *pageEncoder) head(name, help string) {
	p.flush()
	p.family.Name, p.family.Help, p.family.Type = &name, &help, dto.MetricType_GAUGE.Enum()
	if strings.HasSuffix(name, "_total") {
		p.family.Type = dto.MetricType_COUNTER.Enum()
	}
}

// flush appends the metrics of the current family to the page.
func (p *pageEncoder) flush() {
	if len(p.family.Metric) == 0 {
		return
	}
	start := p.text.Len()
	p.encode(&p.family)
	if p.family.Help == nil { // remove the header, which expfmt repeats for each part
		text := p.text.Bytes()[start:]
		_, samples, _ := bytes.Cut(text, []byte("\n"))
		p.text.Truncate(start + copy(text, samples))
	}
	p.family.Help, p.family.Metric = nil, p.family.Metric[:0]
}

// sample adds a metric with the node's label and others to the current family.
func (p *pageEncoder) sample(value float64, labels ...[]*dto.LabelPair) {
	if len(p.family.Metric) == maxPart {
		p.flush()
	}
	n := len(p.family.Metric)
	p.family.Metric = slices.Grow(p.family.Metric, 1)[:n+1]
	if p.family.Metric[n] == nil {
		v := new(float64) // the encoder uses either the counter or the gauge, depending on the type of the family
		p.family.Metric[n] = &dto.Metric{Counter: &dto.Counter{Value: v}, Gauge: &dto.Gauge{Value: v}}
	}
	m := p.family.Metric[n]
	*m.Gauge.Value = value
	m.Label = append(m.Label[:0], p.node...)
	for _, l := range labels {
		m.Label = append(m.Label, l...)
	}
}

// one encodes a metric family with the node's label only.
func (p *pageEncoder) one(name, help string, value float64) {
	p.head(name, help)
	p.sample(value)
}

func truth(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

func joules(v energy.Microjoules) float64 { return float64(v) / 1e6 }

func seconds(v time.Duration) float64 { return float64(v) / 1e9 }
