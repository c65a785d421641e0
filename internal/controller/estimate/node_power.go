package estimate

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/release"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// NodePower is a collector of metrics for nodes and held Jobs. It reads the current objects at each scrape and
// stores no state, so the metrics of deleted objects disappear.
type NodePower struct {
	Nodes func(context.Context) ([]v1.Node, error)
	Pods  func(ctx context.Context, node string) ([]v1.Pod, error)
	View  func() *kube.View
	Held  *release.Held
	Leads func() bool
	Log   *slog.Logger
}

var (
	nodePower = prometheus.NewDesc("kubenergy_node_power_watts",
		"Power of a node by its power profile at the load requested by its pods, without PUE.", []string{"node"}, nil)
	nodePUE = prometheus.NewDesc("kubenergy_node_pue",
		"Ratio of the facility's energy to the node's energy.", []string{"node"}, nil)
	nodeEfficiency = prometheus.NewDesc("kubenergy_node_efficiency",
		"Cores per watt at full load, including PUE, as compared with min-efficiency.", []string{"node"}, nil)
	machines = prometheus.NewDesc("kubenergy_power_machines",
		"Number of machines that may sleep, by power state.", []string{"state"}, nil)
	heldNow = prometheus.NewDesc("kubenergy_held_jobs", "Jobs that are held.", []string{labelNamespace}, nil)
)

// Describe implements prometheus.Collector.
func (c *NodePower) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodePower, nodePUE, nodeEfficiency, machines, heldNow} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *NodePower) Collect(ch chan<- prometheus.Metric) {
	if !c.Leads() {
		return
	}
	c.Held.Each(func(namespace string, count int) {
		ch <- prometheus.MustNewConstMetric(heldNow, prometheus.GaugeValue, float64(count), namespace)
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	nodes, err := c.Nodes(ctx)
	if err != nil {
		c.Log.Warn("Failed to list nodes for metrics", "error", err)
		return
	}
	for state, count := range machinesOf(nodes) {
		ch <- prometheus.MustNewConstMetric(machines, prometheus.GaugeValue, count, string(state))
	}
	view := c.View()
	for i := range nodes {
		n := &nodes[i]
		// List the pods of each node separately, because a list of all pods in a large cluster uses too much
		// memory.
		pods, err := c.Pods(ctx, n.Name)
		if err != nil {
			c.Log.Warn("Failed to list pods for metrics", "error", err)
			return
		}
		var l kube.Load
		for k := range pods {
			l.Add(&pods[k])
		}
		node, ok := l.Node(view, n)
		if !ok {
			continue // the power is unknown, not zero
		}
		show := func(desc *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, n.Name)
		}
		show(nodePower, float64(powerOf(&node, workersOf(pods, view))))
		show(nodePUE, node.Facility())
		if efficiency, known := node.Efficiency(); known {
			show(nodeEfficiency, efficiency)
		}
	}
}

// machinesOf returns the number of machines that may sleep by power state, based on the labels of their nodes.
func machinesOf(nodes []v1.Node) map[sleep.State]float64 {
	count := map[sleep.State]float64{sleep.Awake: 0, sleep.Stopping: 0, sleep.Asleep: 0, sleep.Booting: 0}
	for i := range nodes {
		if state := kube.PowerState(&nodes[i]); state != sleep.Awake ||
			nodes[i].Labels[v1alpha1.LabelMaySleep] == "true" {
			count[state]++
		}
	}
	return count
}

// powerOf returns the power of a node with the given pods: the modeled power without GPUs, plus the GPU power of a
// [scene].
func powerOf(n *sched.Node, workers []worker) energy.Watts {
	s := scene{gpus: n.Capacity.Devices(), workers: workers, profile: n.Profile}
	for i := range workers {
		workers[i].running = !workers[i].ended // pending pods on the node also request resources
	}
	var gpus energy.Watts
	if n.Jobs > 0 {
		free := s.gpuPower(func(_ types.UID, held energy.Watts) { gpus += held })
		gpus += free
	}
	without := *n
	without.Capacity.GPU, without.Capacity.MilliGPU = 0, 0
	return without.Power() + gpus
}
