package power

import (
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/sched/sleep"
)

var machines = prometheus.NewDesc("kubenergy_power_machines", "Machines that may sleep, by what they do.",
	[]string{"state"}, nil)

// Collect counts machines by what their nodes say, for any process that knows nodes.
func Collect(nodes []v1.Node, ch chan<- prometheus.Metric) {
	count := map[sleep.State]float64{sleep.Awake: 0, sleep.Stopping: 0, sleep.Asleep: 0, sleep.Booting: 0}
	for i := range nodes {
		if state := stateOf(&nodes[i]); state != sleep.Awake || nodes[i].Labels[v1alpha1.LabelMaySleep] == "true" {
			count[state]++
		}
	}
	for state, n := range count {
		ch <- prometheus.MustNewConstMetric(machines, prometheus.GaugeValue, n, string(state))
	}
}
