package kube

import (
	"log/slog"

	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// Surviving returns a handler under which a panic costs one event. Informers call handlers in goroutines of their own,
// where a panic would end the process.
func Surviving(log *slog.Logger, h cache.ResourceEventHandler) cache.ResourceEventHandler {
	each := func(f func()) { panics.Survive(log, "objects", "an event of an informer", f) }
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { each(func() { h.OnAdd(obj, initial) }) },
		UpdateFunc: func(before, after any) { each(func() { h.OnUpdate(before, after) }) },
		DeleteFunc: func(obj any) { each(func() { h.OnDelete(obj) }) },
	}
}
