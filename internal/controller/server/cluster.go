package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// loadedNode is a node with the resource requests of its pods.
type loadedNode struct {
	kube.Load
	node *v1.Node
}

func (l *loadedNode) on(view *kube.View) (sched.Node, bool) { return l.Node(view, l.node) }

// clusterCache caches the nodes with their requested resources, so that frequent requests do not iterate over all
// pods each time.
type clusterCache struct {
	turn  chan struct{}
	at    time.Time
	nodes []loadedNode
}

const clusterAge = 5 * time.Second

// nodes returns all nodes sorted by name. The result is shared and must not be modified.
func (s *server) nodes(ctx context.Context) ([]loadedNode, error) {
	c := &s.cluster
	leave, err := enter(ctx, c.turn)
	if err != nil {
		return nil, err
	}
	defer leave()
	if age := s.Now().Sub(c.at); !c.at.IsZero() && age >= 0 && age < clusterAge {
		return c.nodes, nil
	}
	var nodes v1.NodeList
	var pods v1.PodList
	if err := s.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	if err := s.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	c.nodes, c.at = loads(nodes.Items, pods.Items), s.Now()
	return c.nodes, nil
}

func loads(nodes []v1.Node, pods []v1.Pod) []loadedNode {
	all := make([]loadedNode, len(nodes))
	byName := make(map[string]*loadedNode, len(nodes))
	for i := range nodes {
		all[i].node = &nodes[i]
		byName[nodes[i].Name] = &all[i]
	}
	for i := range pods {
		if l := byName[pods[i].Spec.NodeName]; l != nil {
			l.Add(&pods[i])
		}
	}
	slices.SortFunc(all, func(a, b loadedNode) int { return cmp.Compare(a.node.Name, b.node.Name) })
	return all
}

func resourcesOf(r sched.Resources) NodeResources {
	const milli = 1000
	return NodeResources{CPU: float64(r.MilliCPU) / milli, Memory: r.Memory, GPU: r.Devices()}
}
