package controller

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/controller/meter"
	"github.com/kubenergy/kubenergy/test/kit/reference"
	"github.com/kubenergy/kubenergy/test/kit/series"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the table of series in docs/reference/metrics.md")

// TestSeriesAreBounded runs a controller in a cluster with many nodes, namespaces and zones. It compares the number
// of its series with the limits of their labels, and the limits with the budget. The file is sorted after that of
// TestMemoryWith100Zones, which measures the memory of the process.
//
//test:norace
func TestSeriesAreBounded(t *testing.T) {
	registry, all := filled(t)
	page := series.Describe(t, registry, map[string]int{
		"kubenergy_ingest_seconds": 17, "kubenergy_api_request_seconds": 12, "kubenergy_forecast_error_ratio": 2,
	})
	for name, n := range all { // collectors may describe no metrics
		if limit, known := page.Of[name]; !known {
			page.Of[name] = n
			page.Grows[""] = append(page.Grows[""], name)
		} else if n > limit {
			t.Errorf("%s has %d series, want at most %d", name, n, limit)
		}
	}
	rows := []string{series.Head, series.Row(t, "controller", "", "", len(page.Of), page.All())}
	for _, with := range []string{"node", "namespace", "zone", ""} {
		names := page.Grows[with]
		slices.Sort(names)
		t.Logf("by %q: %v", with, names)
		if with == "" {
			with = "none of these"
		}
		rows = append(rows, series.Row(t, "controller", "– of these", with, len(names), page.Sum(names)))
	}
	meters := series.Describe(t, &meter.Poller{}, nil)
	rows = append(rows, series.Row(t, "controller, for a meter on the network on each node", "", "node",
		len(meters.Of), meters.All()))
	reference.Hold(t, "docs/reference/metrics.md", "./internal/controller -run SeriesAreBounded", strings.Join(rows, ""),
		*rewrite)
}

// filled runs a controller in the cluster that the budget applies to. It returns the registry and the number of
// series of each metric once all nodes, namespaces and zones exist.
func filled(t *testing.T) (registry *prometheus.Registry, all map[string]int) {
	t.Helper()
	s := newAPIServer(t)
	s.put(ours+"powerprofiles/all", &v1alpha1.PowerProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		Spec:       v1alpha1.PowerProfileSpec{Default: true, IdleWatts: 100, MaxWatts: 400},
	})
	for i := range series.Nodes {
		name := fmt.Sprintf("node-%04d", i)
		s.put("/api/v1/nodes/"+name, kit.Node(name, "4"))
	}
	for i := range series.Zones {
		name := fmt.Sprintf("zone-%d", i)
		z := typical(name, []string{"DE", "FR", "PL", "SE", "ES", "IT-NO", "GB", "NL", "AT", "BE"}[i])
		s.put(ours+"gridzones/"+name, z)
	}
	for i := range series.Namespaces {
		name := fmt.Sprintf("team-%02d", i)
		s.put("/api/v1/namespaces/"+name, kit.Namespace(name, map[string]string{"kubenergy.io/mode": "shadow"}, nil))
		job := kit.Job(name, "waits", time.Now().Add(time.Minute)) // created after shadow mode starts
		job.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"}
		s.put("/apis/batch/v1/namespaces/"+name+"/jobs/waits", job)
		held := kit.HeldUntil(name, "held", time.Now(), time.Now().Add(time.Hour))
		held.Annotations[v1alpha1.AnnotationAllowedDelay] = "6h" // otherwise it is released after two seconds
		s.put("/apis/batch/v1/namespaces/"+name+"/jobs/held", held)
	}
	o := quiet(t)
	o.State, o.API, o.CSV, o.Agentless = t.TempDir(), "127.0.0.1:0", t.TempDir(), true
	_, registry = start(t, s, o)
	want := map[string]int{
		"kubenergy_node_power_watts": series.Nodes, "kubenergy_node_pue": series.Nodes,
		"kubenergy_node_efficiency": series.Nodes,
		"kubenergy_held_jobs":       series.Namespaces, "kubenergy_shadow_decisions_total": series.Namespaces,
		"kubenergy_signal_age_seconds": 2 * series.Zones,
	}
	kit.Eventually(t, 2*time.Minute, "the metrics contain all nodes, namespaces and zones", func() bool {
		all = count(t, registry)
		for name, n := range want {
			if all[name] < n {
				return false
			}
		}
		return true
	})
	return registry, all
}
