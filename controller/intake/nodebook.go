package controller

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// nodeBook holds the cluster's nodes for those who must never wait: a batch is booked whether or not the API server
// answers. The nodes are those of the cache: read only.
type nodeBook struct {
	byName  sync.Map
	deleted func(name string) // nil: nobody is told
}

func (b *nodeBook) node(name string) *v1.Node {
	if n, ok := b.byName.Load(name); ok {
		return n.(*v1.Node)
	}
	return nil
}

func (b *nodeBook) handler() toolscache.ResourceEventHandler {
	saw := func(obj any) {
		if n, ok := obj.(*v1.Node); ok {
			b.byName.Store(n.Name, n)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: saw, UpdateFunc: func(_, obj any) { saw(obj) },
		DeleteFunc: func(obj any) {
			if n, ok := gone[*v1.Node](obj); ok {
				b.byName.Delete(n.Name)
				if b.deleted != nil {
					b.deleted(n.Name)
				}
			}
		},
	}
}
