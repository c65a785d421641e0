// Package series says how many series our metrics may have, and works out how many they can come to.
package series

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The cluster that the budgets are for.
const (
	Nodes      = 5000
	Namespaces = 100
	Zones      = 10
	PodsOfNode = 110 // with two containers each; more, a kubelet does not take by default
)

// budgets are how many series of our own the page of a program may have in that cluster.
var budgets = map[string]int{
	"controller": 30_000, "controller, for a meter on the network on each node": 70_000, "scheduler": 1000,
	"agent, each": 1500,
}

// most is how many values a label takes at most. Labels whose values nothing bounds do not belong here: objects that
// come and go, such as pods, are told of by the ledger.
var most = map[string]int{
	"node": Nodes, "namespace": Namespaces, "zone": Zones,
	"quantity": 2, "signal": 3, "quality": 4, "currency": 2, "horizon": 3, "resource": 3, // of a zone or a budget
	"strategy": 4, "profile": 2, // that are in use
	"action": 4, "kind": 3, "cause": 2, "rule": 2, "outcome": 8, "result": 8, "reason": 24, "state": 6, "lacks": 6,
	"limit": 5, "by": 4, "owner_kind": 4, "path": 3, "part": 16, "source": 16, "code": 12, "route": 32,
	"method": 1, "meter": 1, // of a route, and of a node
}

// fewer are metrics that have not every combination of their labels' values.
var fewer = map[string]int{
	"kubenergy_decisions_total":       most["strategy"] * most["reason"], // a reason belongs to one action
	"kubenergy_signal_rejected_total": Zones * 2 * 3 * 12,                // chains of three sources; reasons of answers
	"kubenergy_budget_usage_ratio":    (Namespaces + 1000) * 3,           // workloads at most, and shared budgets
	// a meter on each node, of one kind
	"kubenergy_meter_up": Nodes, "kubenergy_meter_power_watts": Nodes, "kubenergy_meter_energy_joules_total": Nodes,
	"kubenergy_meter_age_seconds": Nodes, "kubenergy_meter_polls_total": Nodes * most["outcome"],
}

var describes = regexp.MustCompile(`fqName: "(kubenergy_[a-z_]+)".*variableLabels: {([a-z_,]*)}`)

// A Page is what a program serves at most: series by metric, and metrics by the label that they grow with, "" for none.
type Page struct {
	Of    map[string]int
	Grows map[string][]string
}

// Describe works out the page of a program from what it has registered. points are of histograms, which have a series
// for each bucket and three more, and of summaries. A label whose values nothing bounds is a failure.
func Describe(t *testing.T, registry prometheus.Collector, points map[string]int) Page {
	t.Helper()
	described := make(chan *prometheus.Desc, 4096)
	registry.Describe(described)
	close(described)
	p := Page{map[string]int{}, map[string][]string{}}
	for d := range described {
		m := describes.FindStringSubmatch(d.String())
		if m == nil {
			continue // not ours
		}
		series, with := max(points[m[1]], 1), ""
		for label := range strings.SplitSeq(m[2], ",") {
			n := most[label]
			if _, ok := fewer[m[1]]; label != "" && n == 0 && !ok {
				t.Errorf("%s has the label %s: what bounds its values?", m[1], label)
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

// Sum adds up the series of some metrics.
func (p *Page) Sum(names []string) (n int) {
	for _, name := range names {
		n += p.Of[name]
	}
	return n
}

// All adds up the series of all.
func (p *Page) All() (n int) {
	for _, series := range p.Of {
		n += series
	}
	return n
}

// Head is that of the tables in docs/reference/metrics.md.
const Head = "| program | grows with | metrics | series at most | budget |\n|---|---|---|---|---|\n"

// Row is the row of a program, or, with part, of a part of it. A program that exceeds its budget is a failure.
func Row(t *testing.T, program, part, with string, metrics, series int) string {
	t.Helper()
	if part != "" {
		return fmt.Sprintf("| %s | %s | %d | %d | |\n", part, with, metrics, series)
	}
	t.Logf("%s: at most %d series, of %d", program, series, budgets[program])
	if series > budgets[program] {
		t.Errorf("%s may have %d series: its budget is %d", program, series, budgets[program])
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d |\n", program, with, metrics, series, budgets[program])
}
