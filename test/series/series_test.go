// Package series tests that the scheduler and an agent do not exceed their budgets of metric series.
package series

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kubenergy/kubenergy/internal/agent/exposition"
	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/scheduler/batch"
	"github.com/kubenergy/kubenergy/internal/scheduler/hold"
	"github.com/kubenergy/kubenergy/internal/scheduler/live"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/test/kit/reference"
	"github.com/kubenergy/kubenergy/test/kit/series"
)

var rewrite = flag.Bool("rewrite", false, "regenerate the table of series in docs/reference/metrics.md")

func TestSeriesAreBounded(t *testing.T) {
	page := series.Describe(t, schedulers(t), map[string]int{
		"kubenergy_hold_seconds": 16, "kubenergy_start_lateness_seconds": 17, "kubenergy_release_lateness_seconds": 17,
		"kubenergy_batch_plan_seconds": 16,
	})
	metrics, all := agents(t)
	reference.Hold(t, "docs/reference/metrics.md", "./test/series", series.Head+
		series.Row(t, "scheduler", "", "none of these", len(page.Of), page.All())+
		series.Row(t, "agent, each", "", "containers of its node", metrics, all), *rewrite)
}

// schedulers initializes all metrics of the scheduler and returns their registry.
func schedulers(t *testing.T) prometheus.Collector {
	t.Helper()
	silent := slog.New(slog.DiscardHandler)
	o := apiclient.Options{URL: "http://127.0.0.1:1"}
	if _, err := live.New(o, silent); err != nil {
		t.Fatal(err)
	}
	if _, err := record.New(o, silent); err != nil {
		t.Fatal(err)
	}
	place.New(place.Deps{})
	batch.New(batch.Config{})
	record.Decided(record.Place, "carbon", "Cheapest")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hold.New(hold.Config{Client: fake.NewClientset()}).Run(ctx); err != nil {
		t.Fatal(err)
	}
	return legacyregistry.Registerer().(*prometheus.Registry)
}

// agents returns the number of metrics and series that the agent of a full node exposes.
func agents(t *testing.T) (metrics, all int) {
	t.Helper()
	e := exposition.New(exposition.Options{Node: "node-0001", MaxConsumers: 2000})
	a := &energy.Attribution{End: time.Second, Quality: energy.Measured}
	add := func(id string) {
		a.Shares = append(a.Shares, energy.Share{ID: id, Dynamic: 1000, Idle: 200, CPU: time.Millisecond})
		a.Measured += 1200
	}
	for i := range series.PodsOfNode {
		uid := fmt.Sprintf("0e0a6a2e-5c7c-4a53-9d5a-%012d", i)
		for _, container := range []string{"", fmt.Sprintf("%064x", 2*i), fmt.Sprintf("%064x", 2*i+1)} {
			add(energy.ContainerID(uid, container))
		}
	}
	add(energy.System)
	slices.SortFunc(a.Shares, func(x, y energy.Share) int { return strings.Compare(x.ID, y.ID) })
	e.Add(a, "rapl")
	e.SetStatus(&exposition.Status{
		Source: "psys (rapl)", Meters: []exposition.MeterStatus{{Name: "rapl"}, {Name: "hwmon"}, {Name: "model"}},
		Delivery: &exposition.DeliveryStatus{},
	})
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "kubenergy_") {
			all++
		} else if strings.HasPrefix(line, "# TYPE kubenergy_") {
			metrics++
		}
	}
	if all < 9*series.PodsOfNode {
		t.Errorf("agent exposes only %d series for %d containers", all, 2*series.PodsOfNode)
	}
	return metrics, all
}
