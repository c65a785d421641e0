package exposition

import (
	"bytes"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// page is a page of metrics in Prometheus' text format or in OpenMetrics.
type page struct {
	text        []byte
	openMetrics bool
	node        string // first label of all metrics
	name        string // of the current metric family
	head        string // of the current metric family, unless it has been written
}

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
	page := bytes.NewBuffer(e.write(openMetrics))
	for _, family := range collected { // writing to memory cannot fail
		if openMetrics {
			_, _ = expfmt.MetricFamilyToOpenMetrics(page, family)
		} else {
			_, _ = expfmt.MetricFamilyToText(page, family)
		}
	}
	if openMetrics {
		_, _ = expfmt.FinalizeOpenMetrics(page)
	}
	return page.Bytes()
}

// write returns the metrics that do not pass through a registry, because creating, checking and encoding metrics with
// client_golang costs several times as much.
func (e *Exporter) write(openMetrics bool) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := &page{text: make([]byte, 0, 16<<10+e.size+e.size/16), openMetrics: openMetrics, node: e.node}
	e.writeNode(p)
	e.writeStatus(p)
	e.writeBoards(p)
	for k := range kindOther {
		p.consumers(k, e.consumers)
	}
	p.consumers(kindOther, []*consumer{&e.other})
	p.consumers(kindEnded, []*consumer{&e.ended})
	e.size = len(p.text)
	return p.text
}

// family starts a metric family: a counter if the name ends with _total, otherwise a gauge.
func (p *page) family(name, help string) {
	kind, base := "gauge", name
	if counter, ok := strings.CutSuffix(name, "_total"); ok {
		kind = "counter"
		if p.openMetrics {
			base = counter
		}
	}
	p.name, p.head = name, "# HELP "+base+" "+help+"\n# TYPE "+base+" "+kind+"\n"
}

// sample writes a metric of the current family with the node's label and others, see pairs.
func (p *page) sample(value float64, labels ...string) {
	p.text = append(append(append(append(p.text, p.head...), p.name...), '{'), p.node...)
	for _, l := range labels {
		p.text = append(p.text, l...)
	}
	p.text = append(strconv.AppendFloat(append(p.text, "} "...), value, 'g', -1, 64), '\n')
	p.head = ""
}

// one writes a metric family with the node's label only.
func (p *page) one(name, help string, value float64) {
	p.family(name, help)
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
