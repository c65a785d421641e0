package plugins

import (
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// NewInTreeRegistry returns the in-tree registry with the KubEnergy plugins added.
func NewInTreeRegistry() runtime.Registry {
	registry := stockRegistry()
	for name, factory := range enabled.Factories() {
		if err := registry.Register(name, factory); err != nil {
			panic(err)
		}
	}
	return registry
}
