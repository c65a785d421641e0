package kube

import (
	"log/slog"

	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// Surviving returns a handler that recovers from panics of h, so that a panic only affects a single event.
// Informers call handlers in separate goroutines, in which a panic would terminate the process.
func Surviving(log *slog.Logger, h cache.ResourceEventHandler) cache.ResourceEventHandler {
	each := func(f func()) { panics.Survive(log, "objects", "an informer event", f) }
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { each(func() { h.OnAdd(obj, initial) }) },
		UpdateFunc: func(before, after any) { each(func() { h.OnUpdate(before, after) }) },
		DeleteFunc: func(obj any) { each(func() { h.OnDelete(obj) }) },
	}
}

// EventObject returns the object of an informer event, even if the informer missed its deletion. ok is false if the
// object is not of type T.
func EventObject[T any](obj any) (o T, ok bool) {
	if missed, found := obj.(cache.DeletedFinalStateUnknown); found {
		obj = missed.Obj
	}
	o, ok = obj.(T)
	return o, ok
}
