// Package series defines the maximum number of metric series of each program and computes an upper bound from the
// registered metrics.
package series

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Size of the cluster on which the budgets are based.
const (
	Nodes      = 5000
	Namespaces = 100
	Zones      = 10
	PodsOfNode = 110 // each with two containers; 110 is the default limit of a kubelet
)

// budgets contains the maximum number of KubEnergy series that each program may expose in that cluster.
var budgets = map[string]int{
	"controller": 30_000, "controller, for a meter on the network on each node": 70_000, "scheduler": 1000,
	"agent, each": 1500,
}

// most contains the maximum number of values of each label. Labels with unbounded values must not be added. Objects
// with a short lifetime, such as pods, are reported by the ledger instead.
var most = map[string]int{
	"node": Nodes, "namespace": Namespaces, "zone": Zones,
	"quantity": 2, "signal": 3, "quality": 4, "currency": 2, "horizon": 3, "resource": 3, // per zone or budget
	"strategy": 4, "profile": 2, // in use
	"action": 4, "kind": 3, "cause": 2, "rule": 2, "outcome": 8, "result": 8, "reason": 24, "state": 6, "lacks": 6,
	"limit": 5, "by": 4, "owner_kind": 4, "path": 3, "part": 16, "source": 16, "code": 12, "route": 32,
	"method": 1, "meter": 1, // per route and per node
}

// fewer contains the maximum number of series of metrics that do not have every combination of their label values.
var fewer = map[string]int{
	"kubenergy_decisions_total":       most["strategy"] * most["reason"], // each reason belongs to one action
	"kubenergy_signal_rejected_total": Zones * 2 * 3 * 12,                // three sources, reasons of responses
	"kubenergy_budget_usage_ratio":    (Namespaces + 1000) * 3,           // limit of workloads plus shared budgets
	// One meter of one kind per node.
	"kubenergy_meter_up": Nodes, "kubenergy_meter_power_watts": Nodes, "kubenergy_meter_energy_joules_total": Nodes,
	"kubenergy_meter_age_seconds": Nodes, "kubenergy_meter_polls_total": Nodes * most["outcome"],
}

var describes = regexp.MustCompile(`fqName: "(kubenergy_[a-z_]+)".*variableLabels: {([a-z_,]*)}`)

// A Page is an upper bound of the metrics that a program exposes. Of contains the number of series by metric. Grows
// contains the metrics by the label that dominates their growth, which is "" for metrics of constant size.
type Page struct {
	Of    map[string]int
	Grows map[string][]string
}

// Describe computes the page of a program from its registered metrics. points contains the number of points of
// histograms, which have one series per bucket and three more, and of summaries. The test fails if the values of a
// label are unbounded.
func Describe(t *testing.T, registry prometheus.Collector, points map[string]int) Page {
	t.Helper()
	described := make(chan *prometheus.Desc, 4096)
	registry.Describe(described)
	close(described)
	p := Page{map[string]int{}, map[string][]string{}}
	for d := range described {
		m := describes.FindStringSubmatch(d.String())
		if m == nil {
			continue // metric of a library
		}
		series, with := max(points[m[1]], 1), ""
		for label := range strings.SplitSeq(m[2], ",") {
			n := most[label]
			if _, ok := fewer[m[1]]; label != "" && n == 0 && !ok {
				t.Errorf("metric %s has the label %s, but the number of its values is not bounded", m[1], label)
			}
			series *= max(n, 1)
			if label == "node" || label == "namespace" || label == "zone" {
				with = label
			}
		}
		if n, ok := fewer[m[1]]; ok {
			series = n
		}
		if m[1] == "kubenergy_meter_polls_total" {
			with = "node"
		}
		if p.Of[m[1]] == 0 {
			p.Grows[with] = append(p.Grows[with], m[1])
		}
		p.Of[m[1]] += series
	}
	return p
}

// Sum returns the total number of series of the given metrics.
func (p *Page) Sum(names []string) (n int) {
	for _, name := range names {
		n += p.Of[name]
	}
	return n
}

// All returns the total number of series of all metrics.
func (p *Page) All() (n int) {
	for _, series := range p.Of {
		n += series
	}
	return n
}

// Head is the header of the tables in docs/reference/metrics.md.
const Head = "| program | grows with | metrics | series at most | budget |\n|---|---|---|---|---|\n"

// Row returns the table row of a program, or of one part of the program if part is not empty. The test fails if a
// program exceeds its budget.
func Row(t *testing.T, program, part, with string, metrics, series int) string {
	t.Helper()
	if part != "" {
		return fmt.Sprintf("| %s | %s | %d | %d | |\n", part, with, metrics, series)
	}
	t.Logf("%s: at most %d series, budget %d", program, series, budgets[program])
	if series > budgets[program] {
		t.Errorf("%s may expose %d series, want at most %d", program, series, budgets[program])
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d |\n", program, with, metrics, series, budgets[program])
}
