package karmada

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

// believed is how long a pod of ours may find no node in a member whose nodes seem to have room. After that the room is
// not believed, until such a pod has found one.
const believed = time.Minute

// members are the clusters of the federation, and what is known of their room.
type members struct {
	config *rest.Config // of Karmada's API server, through which members are reached
	view   func() *kube.View
	log    *slog.Logger

	mu sync.Mutex
	of map[string]*member
}

// member is one cluster. Its nodes and pods are watched through Karmada's proxy, with the rights that Karmada has
// there.
type member struct {
	cluster     *cluster
	nodes, pods cache.SharedIndexInformer
	stop        context.CancelFunc
}

// saw takes note of a cluster, and begins to watch it.
func (m *members) saw(ctx context.Context, c *cluster) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.of[c.Name]; known != nil && known.cluster.UID == c.UID {
		known.cluster = c
		return nil
	}
	m.drop(c.Name)
	config := rest.CopyConfig(m.config)
	config.Host = strings.TrimSuffix(config.Host, "/") + "/apis/" + clusterResource.Group + "/" + clusterResource.Version +
		"/clusters/" + c.Name + "/proxy"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("reaching cluster %s: %w", c.Name, err)
	}
	ctx, stop := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(kube.Trim))
	known := &member{
		cluster: c, nodes: factory.Core().V1().Nodes().Informer(), pods: factory.Core().V1().Pods().Informer(), stop: stop,
	}
	factory.StartWithContext(ctx)
	m.of[c.Name] = known
	return nil
}

// lost forgets a cluster.
func (m *members) lost(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(name)
}

func (m *members) drop(name string) {
	if known := m.of[name]; known != nil {
		known.stop()
		delete(m.of, name)
	}
}

// clusters returns all of them.
func (m *members) clusters() (all []*cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, known := range m.of {
		all = append(all, known.cluster)
	}
	return all
}

// cluster returns one of them, or nil.
func (m *members) cluster(name string) *cluster {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.of[name]; known != nil {
		return known.cluster
	}
	return nil
}

// room returns the nodes of a cluster on which new work may go, as the core sees them, how many pods each Job has there,
// and why there are no nodes.
func (m *members) room(name string, now time.Time) (nodes []*sched.Node, jobs map[string]int32, why string) {
	m.mu.Lock()
	known := m.of[name]
	m.mu.Unlock()
	switch {
	case known == nil:
		return nil, nil, "it is not known"
	case !known.cluster.ready():
		return nil, nil, "Karmada does not reach it"
	case !known.nodes.HasSynced() || !known.pods.HasSynced():
		return nil, nil, "its nodes are not known yet"
	}
	load, jobs := map[string]*kube.Load{}, map[string]int32{}
	for _, o := range known.pods.GetStore().List() {
		p, ok := o.(*v1.Pod)
		if !ok {
			continue
		}
		if job := p.Labels[batchv1.JobNameLabel]; job != "" {
			jobs[p.Namespace+"/"+job]++
		}
		if p.Spec.NodeName == "" {
			if waitsTooLong(p, now) {
				return nil, nil, fmt.Sprintf("pod %s/%s has found no node there for a minute", p.Namespace, p.Name)
			}
			continue
		}
		if load[p.Spec.NodeName] == nil {
			load[p.Spec.NodeName] = &kube.Load{}
		}
		load[p.Spec.NodeName].Add(p)
	}
	view := m.view()
	for _, o := range known.nodes.GetStore().List() {
		n, ok := o.(*v1.Node)
		if !ok || n.Spec.Unschedulable {
			continue
		}
		if load[n.Name] == nil {
			load[n.Name] = &kube.Load{}
		}
		node, _ := load[n.Name].Node(view, known.cluster.locate(n))
		nodes = append(nodes, &node)
	}
	return nodes, jobs, ""
}

func waitsTooLong(p *v1.Pod, now time.Time) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
			return now.Sub(c.LastTransitionTime.Time) > believed
		}
	}
	return false
}

// locate returns a node of a cluster as one of the federation: named after its cluster, and on the grid that the
// Cluster says, whatever the node says of itself.
func (c *cluster) locate(n *v1.Node) *v1.Node {
	located := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: c.Name + "/" + n.Name, Labels: maps.Clone(n.Labels), Annotations: n.Annotations,
	}, Spec: n.Spec, Status: n.Status}
	if located.Labels == nil {
		located.Labels = map[string]string{}
	}
	for key, value := range map[string]string{
		v1alpha1.LabelSite: c.Labels[v1alpha1.LabelSite], v1.LabelTopologyZone: c.Spec.Zone,
		v1.LabelTopologyRegion: c.Spec.Region,
	} {
		if delete(located.Labels, key); value != "" {
			located.Labels[key] = value
		}
	}
	return located
}

// clusterOf returns which cluster a node of a room is of.
func clusterOf(node string) string {
	name, _, _ := strings.Cut(node, "/")
	return name
}
