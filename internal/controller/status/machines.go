package status

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// Machines collects the number of machines by power state, based on the labels of their nodes.
type Machines struct {
	Nodes func(context.Context) ([]v1.Node, error)
	Leads func() bool
}

var machines = prometheus.NewDesc("kubenergy_power_machines", "Number of machines that may sleep, by power state.",
	[]string{"state"}, nil)

// Describe implements prometheus.Collector.
func (m *Machines) Describe(ch chan<- *prometheus.Desc) { ch <- machines }

// Collect implements prometheus.Collector.
func (m *Machines) Collect(ch chan<- prometheus.Metric) {
	if !m.Leads() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	nodes, err := m.Nodes(ctx)
	if err != nil {
		return
	}
	count := map[sleep.State]float64{sleep.Awake: 0, sleep.Stopping: 0, sleep.Asleep: 0, sleep.Booting: 0}
	for i := range nodes {
		if state := kube.PowerState(&nodes[i]); state != sleep.Awake ||
			nodes[i].Labels[v1alpha1.LabelMaySleep] == "true" {
			count[state]++
		}
	}
	for state, n := range count {
		ch <- prometheus.MustNewConstMetric(machines, prometheus.GaugeValue, n, string(state))
	}
}
