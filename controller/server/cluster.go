package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// loadedNode is a node and what its pods request.
type loadedNode struct {
	node      *v1.Node
	requested sched.Resources
	pods      int // those of DaemonSets let a node sleep
}

func (l *loadedNode) on(view *kube.View) (sched.Node, bool) {
	capacity := kube.Allocatable(l.node)
	return view.Node(l.node, capacity, capacity.Sub(l.requested), l.pods)
}

// clusterCache remembers what adding up all pods has found. Frequent requests must not cost a pass over all
// pods each.
type clusterCache struct {
	turn  chan struct{}
	at    time.Time
	nodes []loadedNode
}

const clusterAge = 5 * time.Second

// nodes returns all nodes, by name. Read only.
func (s *server) nodes(ctx context.Context) ([]loadedNode, error) {
	if s.Client == nil {
		return nil, nil
	}
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
		p := &pods[i]
		l := byName[p.Spec.NodeName]
		if l == nil || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		l.requested = l.requested.Add(policy.PodRequest(p))
		if policy.KeepsAwake(p) {
			l.pods++
		}
	}
	slices.SortFunc(all, func(a, b loadedNode) int { return cmp.Compare(a.node.Name, b.node.Name) })
	return all
}

func resourcesOf(r sched.Resources) NodeResources {
	const milli = 1000
	return NodeResources{CPU: float64(r.MilliCPU) / milli, Memory: r.Memory, GPU: r.GPU}
}
