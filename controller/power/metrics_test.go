package power

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
)

func TestMetrics(t *testing.T) {
	w, r := one(t, 3)
	w.live(t, r, 40*time.Second)
	var all []v1.Node
	for _, n := range w.nodes {
		all = append(all, *n)
	}
	collect := prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) { Collect(all, ch) })
	if err := testutil.CollectAndCompare(collect, strings.NewReader(`
		# HELP kubenergy_power_machines Machines that may sleep, by what they do.
		# TYPE kubenergy_power_machines gauge
		kubenergy_power_machines{state="asleep"} 0
		kubenergy_power_machines{state="awake"} 0
		kubenergy_power_machines{state="booting"} 0
		kubenergy_power_machines{state="stopping"} 3
	`)); err != nil {
		t.Error(err)
	}
}
