package intake

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
)

// TestLedgerMetrics checks the metrics of a ledger and of the nodes.
func TestLedgerMetrics(t *testing.T) {
	now := time.Now()
	l := ledger.New(&ledgertest.Store{}, ledger.Options{})
	t.Cleanup(func() { _ = l.Close() })
	m := &LedgerMetrics{Ledger: l, Now: func() time.Time { return now }, Nodes: func() api.NodesPower {
		return api.NodesPower{Nodes: []api.NodePower{
			{Node: "a", AsOf: now, Quality: energy.Measured},
			{Node: "b", AsOf: now.Add(-time.Minute)},
			{Node: "c", AsOf: now, Implausible: true},
		}}
	}}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, one := range f.Metric {
			key := f.GetName()
			var keySb69 strings.Builder
			for _, label := range one.Label {
				keySb69.WriteString("/" + label.GetValue())
			}
			key += keySb69.String()
			got[key] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
		}
	}
	for key, want := range map[string]float64{
		"kubenergy_ledger_writable": 1, "kubenergy_ledger_bookings_total/booked": 0,
		"kubenergy_metered_nodes/live": 1, "kubenergy_metered_nodes/stale": 1, "kubenergy_metered_nodes/implausible": 1,
	} {
		if value, ok := got[key]; !ok || value != want {
			t.Errorf("%s = %v (%v), want %v", key, value, ok, want)
		}
	}
}
