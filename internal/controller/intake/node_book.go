package intake

import (
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// A NodeBook holds the cluster's nodes for callers that must never wait: a batch is booked whether or not the API
// server answers. The nodes are those of the cache: read only.
type NodeBook struct{ byName sync.Map }

// Node returns the node of a name; nil: there is none.
func (b *NodeBook) Node(name string) *v1.Node {
	if n, ok := b.byName.Load(name); ok {
		return n.(*v1.Node)
	}
	return nil
}

// Power returns what the machine of a node does, by the node's label; "": it is awake.
func (b *NodeBook) Power(name string) string {
	if n := b.Node(name); n != nil {
		return n.Labels[v1alpha1.LabelPowerState]
	}
	return ""
}

// Saw is told of every node that an informer adds or updates.
func (b *NodeBook) Saw(n *v1.Node) { b.byName.Store(n.Name, n) }

// Lost is told of every node that is deleted.
func (b *NodeBook) Lost(n *v1.Node) { b.byName.Delete(n.Name) }
