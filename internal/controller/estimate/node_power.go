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

// NodePower shows nodes and held Jobs as they are at each scrape. It remembers nothing, so nothing outlives its object.
type NodePower struct {
	Client client.Client // with an index of pods by node
	View   func() *kube.View
	Held   *release.Held
	Leads  func() bool
	Log    *slog.Logger
}

var (
	nodePower = prometheus.NewDesc("kubenergy_node_power_watts",
		"Power that a node draws at the load that its pods request, by its power profile, without PUE.",
		[]string{"node"}, nil)
	nodePUE = prometheus.NewDesc("kubenergy_node_pue",
		"Energy of the facility per energy of the node.", []string{"node"}, nil)
	nodeEfficiency = prometheus.NewDesc("kubenergy_node_efficiency",
		"Cores per watt at full load, PUE included: what min-efficiency compares with.", []string{"node"}, nil)
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
		c.Log.Warn("listing nodes for metrics", "error", err)
		return
	}
	view := c.View()
	for i := range nodes.Items {
		n := &nodes.Items[i]
		// Node by node: a list of all pods of a large cluster takes more memory than all else here.
		var pods v1.PodList
		if err := c.Client.List(ctx, &pods, client.MatchingFields{cached.NodeIndex: n.Name},
			client.UnsafeDisableDeepCopy); err != nil {
			c.Log.Warn("listing pods for metrics", "error", err)
			return
		}
		var l kube.Load
		for k := range pods.Items {
			l.Add(&pods.Items[k])
		}
		node, ok := l.Node(view, n)
		if !ok {
			continue // an unknown node draws an unknown power, not none
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

// powerOf is what a node draws with these pods: what its CPUs and its own are, and the GPUs as a [scene] counts them.
func powerOf(n *sched.Node, workers []worker) energy.Watts {
	s := scene{gpus: n.Capacity.GPU, workers: workers, profile: n.Profile}
	for i := range workers {
		workers[i].running = !workers[i].ended // what is bound to the node requests of it
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
