package intake

import (
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// A NodeBook provides the nodes of the cluster without blocking, because batches are recorded even if the API
// server is unavailable. It contains pointers to the objects of the cache, which callers must not modify. It is
// safe for concurrent use.
type NodeBook struct{ byName sync.Map }

// Node returns a node by name, or nil if it does not exist.
func (b *NodeBook) Node(name string) *v1.Node {
	if n, ok := b.byName.Load(name); ok {
		return n.(*v1.Node)
	}
	return nil
}

// Power returns the power state in the labels of a node, or "" if its machine is awake.
func (b *NodeBook) Power(name string) string {
	if n := b.Node(name); n != nil {
		return n.Labels[v1alpha1.LabelPowerState]
	}
	return ""
}

// Saw must be called for every node that an informer adds or updates.
func (b *NodeBook) Saw(n *v1.Node) { b.byName.Store(n.Name, n) }

// Lost must be called for every node that is deleted.
func (b *NodeBook) Lost(n *v1.Node) { b.byName.Delete(n.Name) }
