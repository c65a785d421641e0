package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Objects keeps a [View] up to date with objects of the API server. These are GridZones, PowerProfiles,
// EnergyPolicies, labels and annotations of namespaces, EnergyBudgets that are used up, and the knowledge base of
// the hybrid scheduler. Objects that cannot be watched, because of missing permissions or because their kind is not
// installed, are treated as absent, and watching them is retried.
//
// Defaults is initialized from [policy.BuiltIn] and must not be changed after Run has been called.
type Objects struct {
	Defaults policy.Defaults
	Log      *slog.Logger

	watches []*watched // in the order of kinds
	view    atomic.Pointer[View]
	changed chan struct{}
	began   time.Time
	limits  limits

	last     []*item // items of the last view
	reported map[problem]bool
	failed   string // error of the last view that could not be built
}

// limits contains timeouts of Objects.
type limits struct {
	// timeout is the maximum time to wait for policies, after which they are assumed not to exist.
	timeout time.Duration
	// belief is the time after which a persistent rejection is considered final. Until then, permissions may still
	// be granted and kinds installed.
	belief time.Duration
	// grace is how long cached objects remain in use after the server has started to reject requests for them.
	grace time.Duration
}

// kind is a kind of objects with the function that converts them to items.
type kind struct {
	resource     schema.GroupVersionResource
	in, name     string // empty means any
	policies     bool   // a view is unsettled until the objects have been loaded
	read         func(*unstructured.Unstructured) *item
	perNamespace bool // the objects of a single namespace, or that namespace, can be read separately
}

// knowledgeBaseName is the name of the ConfigMap in kube-system in which the hybrid scheduler stores its
// benchmarks.
const knowledgeBaseName = "scheduler-knowledge-base"

// kinds contains all kinds of objects that are part of a view.
var kinds = []kind{
	{resource: v1alpha1.GroupVersion.WithResource("gridzones"), read: reading(kindZone, readZone)},
	{resource: v1alpha1.GroupVersion.WithResource("powerprofiles"), read: reading("PowerProfile", readProfile)},
	{
		resource: v1alpha1.GroupVersion.WithResource("energypolicies"), policies: true,
		read: reading("EnergyPolicy", readPolicy), perNamespace: true,
	},
	{
		resource: v1.SchemeGroupVersion.WithResource("namespaces"), policies: true,
		read: reading("Namespace", readNamespace), perNamespace: true,
	},
	{
		resource: v1alpha1.GroupVersion.WithResource("energybudgets"),
		read:     reading(kindBudget, readBudget), perNamespace: true,
	},
	{
		resource: v1alpha1.GroupVersion.WithResource("jobprofiles"),
		read:     reading("JobProfile", readJobProfile), perNamespace: true,
	},
	{
		resource: v1.SchemeGroupVersion.WithResource("configmaps"), in: metav1.NamespaceSystem, name: knowledgeBaseName,
		read: reading("ConfigMap", readKnowledge),
	},
}

const (
	// settleFor is how long changes are collected before a view is built.
	settleFor = 50 * time.Millisecond
	// maxRest limits the pause after building a view, which is nine times the duration of building it.
	maxRest = 5 * time.Second
	// lookEvery is the interval at which the caches and timeouts are polled, because no event is sent when a cache
	// has synced. Afterwards only rejections by the server have to be detected, at the interval lookRarely, because
	// each check wakes up a processor.
	lookEvery  = 200 * time.Millisecond
	lookRarely = 5 * time.Second
)

// NewObjects returns an Objects that connects to the API server with the given configuration.
func NewObjects(config *rest.Config, log *slog.Logger) (*Objects, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	o := &Objects{
		Defaults: policy.BuiltIn(), Log: log, changed: make(chan struct{}, 1),
		limits: limits{timeout: 30 * time.Second, belief: 5 * time.Second, grace: 30 * time.Second},
	}
	o.watches = sliceutil.Map(sliceutil.Refs(kinds), func(k *kind) *watched { return newWatched(k, client) })
	return o, nil
}

// View returns the current view. It does not block and never returns nil. The view is unsettled until the policies
// have been loaded.
func (o *Objects) View() *View {
	return cmp.Or(o.view.Load(), Unsettled())
}

var unsettled = View{unsettled: true}

// Unsettled returns the view that is used until the policies have been loaded.
func Unsettled() *View { return &unsettled }

// Synced reports whether all objects that can be read have been read.
func (o *Objects) Synced() bool {
	now := time.Now()
	return !slices.ContainsFunc(o.watches, func(w *watched) bool { return !w.known(now, o.limits.belief) })
}

// Run watches the objects until ctx is done.
func (o *Objects) Run(ctx context.Context) error {
	o.began = time.Now()
	var running sync.WaitGroup
	defer running.Wait()
	for _, w := range o.watches {
		if err := w.prepare(func() { daemon.Poke(o.changed) }, o.Log); err != nil {
			return fmt.Errorf("watching %s: %w", w.resource.Resource, err)
		}
		running.Go(func() { w.informer.RunWithContext(ctx) })
	}
	look := time.NewTimer(lookEvery)
	defer look.Stop()
	var before []bool
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.changed:
			Pause(ctx, settleFor)
			var took time.Duration
			daemon.Round(ctx, func() { took = o.refresh() })
			Pause(ctx, min(9*took, maxRest))
		case <-look.C:
			if state := o.state(time.Now()); !slices.Equal(state, before) {
				before = state
				daemon.Round(ctx, func() { o.refresh() })
			}
			if look.Reset(lookEvery); o.Synced() && o.View().Settled() {
				look.Reset(min(lookRarely, o.limits.grace))
			}
		}
	}
}

// state returns the conditions that may change with time although no object has changed.
func (o *Objects) state(now time.Time) (state []bool) {
	for _, w := range o.watches {
		state = append(state, w.known(now, o.limits.belief), w.withdrawn(now, o.limits.grace))
	}
	return append(state, o.waiting(now))
}

// waiting reports whether policies may still be loaded. Once it returns false, it never returns true again.
func (o *Objects) waiting(now time.Time) bool {
	if v := o.view.Load(); v != nil && v.Settled() || now.Sub(o.began) >= o.limits.timeout {
		return false
	}
	return slices.ContainsFunc(o.watches, func(w *watched) bool { return w.policies && !w.known(now, o.limits.belief) })
}

// refresh publishes a view. If that panics, the last view remains in use until the next change. After the timeout,
// a default view is published in any case, because Jobs that were created suspended would otherwise not be planned.
func (o *Objects) refresh() (took time.Duration) {
	if !panics.Survive(o.Log, "view", "building a view of the API server's objects", func() { took = o.publish() }) &&
		!o.View().Settled() && time.Since(o.began) >= o.limits.timeout {
		o.put(&Contents{Defaults: o.Defaults})
	}
	return took
}

// publish builds a view of the cached objects, unless it would be equal to the last one. It returns the elapsed
// time.
func (o *Objects) publish() (took time.Duration) {
	now := time.Now()
	var items []*item
	for _, w := range o.watches {
		if !w.withdrawn(now, o.limits.grace) {
			items = append(items, w.items()...)
		}
	}
	waiting, before := o.waiting(now), o.view.Load()
	if before != nil && before.unsettled == waiting && slices.EqualFunc(items, o.last, (*item).same) {
		return time.Since(now)
	}
	c := assemble(items, o.Defaults)
	c.Unsettled = waiting
	o.last = items
	o.notify(items)
	o.put(c)
	return time.Since(now)
}

// put publishes a view of the contents. If it cannot be built, the last view remains in use.
func (o *Objects) put(c *Contents) {
	v, err := c.View()
	if err != nil { // unexpected, because each part has been validated
		if o.failed != err.Error() {
			o.failed = err.Error()
			o.Log.Error("Failed to build a view, the previous one remains in use", "error", err)
		}
		return
	}
	o.failed = ""
	o.view.Store(v)
}

// notify logs problems of objects that did not exist at the last call.
func (o *Objects) notify(items []*item) {
	now := map[problem]bool{}
	for _, it := range items {
		for _, p := range it.problems {
			if now[p] = true; !o.reported[p] {
				p.log(o.Log)
			}
		}
	}
	o.reported = now
}

func (p *problem) log(log *slog.Logger) {
	what := []any{"kind", p.kind, "namespace", p.namespace, "name", p.name, "error", p.why}
	if p.part {
		log.Warn("Part of an object cannot be used and is ignored", what...)
		return
	}
	log.Warn("Object cannot be used and is ignored", what...)
}
