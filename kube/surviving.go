package kube

import (
	"log/slog"

	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/kube/panics"
)

// Surviving returns a handler under which a panic costs one event. Informers call handlers in goroutines of their own,
// where a panic would end the process.
func Surviving(log *slog.Logger, h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return surviving{h, log}
}

type surviving struct {
	handler cache.ResourceEventHandler
	log     *slog.Logger
}

func (s surviving) each(f func()) { panics.Survive(s.log, "objects", "an event of an informer", f) }

// OnAdd implements [cache.ResourceEventHandler], as the others do.
func (s surviving) OnAdd(obj any, initial bool) { s.each(func() { s.handler.OnAdd(obj, initial) }) }

// OnUpdate is told of changes.
func (s surviving) OnUpdate(before, after any) { s.each(func() { s.handler.OnUpdate(before, after) }) }

// OnDelete is told of what is gone.
func (s surviving) OnDelete(obj any) { s.each(func() { s.handler.OnDelete(obj) }) }
