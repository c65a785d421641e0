package estimate

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/internal/controller/cached"
	"github.com/kubenergy/kubenergy/internal/controller/release"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// NodePower is a collector of metrics for nodes and held Jobs. It reads the current objects at each scrape and
// stores no state, so the metrics of deleted objects disappear.
type NodePower struct {
	Client client.Client // requires an index of pods by node
	View   func() *kube.View
	Held   *release.Held
	Leads  func() bool
	Log    *slog.Logger
}

var (
	nodePower = prometheus.NewDesc("kubenergy_node_power_watts",
		"Power of a node by its power profile at the load requested by its pods, without PUE.", []string{"node"}, nil)
	nodePUE = prometheus.NewDesc("kubenergy_node_pue",
		"Ratio of the facility's energy to the node's energy.", []string{"node"}, nil)
	nodeEfficiency = prometheus.NewDesc("kubenergy_node_efficiency",
		"Cores per watt at full load, including PUE, as compared with min-efficiency.", []string{"node"}, nil)
	heldNow = prometheus.NewDesc("kubenergy_held_jobs", "Jobs that are held.", []string{labelNamespace}, nil)
)

// Describe implements prometheus.Collector.
func (c *NodePower) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodePower, nodePUE, nodeEfficiency, heldNow} {
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
	var nodes v1.NodeList
	if err := c.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		c.Log.Warn("Failed to list nodes for metrics", "error", err)
		return
	}
	view := c.View()
	for i := range nodes.Items {
		n := &nodes.Items[i]
		// List the pods of each node separately, because a list of all pods in a large cluster uses too much
		// memory.
		var pods v1.PodList
		if err := c.Client.List(ctx, &pods, client.MatchingFields{cached.NodeIndex: n.Name},
			client.UnsafeDisableDeepCopy); err != nil {
			c.Log.Warn("Failed to list pods for metrics", "error", err)
			return
		}
		var l kube.Load
		for k := range pods.Items {
			l.Add(&pods.Items[k])
		}
		node, ok := l.Node(view, n)
		if !ok {
			continue // the power is unknown, not zero
		}
		show := func(desc *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, n.Name)
		}
		show(nodePower, float64(powerOf(&node, workersOf(pods.Items, view))))
		show(nodePUE, node.Facility())
		if efficiency, known := node.Efficiency(); known {
			show(nodeEfficiency, efficiency)
		}
	}
}

// powerOf returns the power of a node with the given pods: the modeled power without GPUs, plus the GPU power of a
// [scene].
func powerOf(n *sched.Node, workers []worker) energy.Watts {
	s := scene{gpus: n.Capacity.GPU, workers: workers, profile: n.Profile}
	for i := range workers {
		workers[i].running = !workers[i].ended // pending pods on the node also request resources
	}
	var gpus energy.Watts
	if n.Jobs > 0 {
		free := s.gpuPower(func(_ types.UID, held energy.Watts) { gpus += held })
		gpus += free
	}
	without := *n
	without.Capacity.GPU = 0
	return without.Power() + gpus
}
