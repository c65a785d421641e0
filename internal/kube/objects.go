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
)

// Objects keeps a [View] up to date with what the API server holds: GridZones, PowerProfiles, EnergyPolicies, what
// namespaces say of themselves, EnergyBudgets that are used up, and the hybrid scheduler's knowledge base. What
// cannot be watched, for want of rights or because it is not installed, counts as absent, and is tried again.
//
// Set Defaults, at first those of [policy.BuiltIn], before Run.
type Objects struct {
	Defaults policy.Defaults
	Log      *slog.Logger

	watches []*watched // in the order of kinds
	view    atomic.Pointer[View]
	changed chan struct{}
	began   time.Time
	limits  limits

	last     []*item // what the last view was made of
	reported map[problem]bool
	failed   string // why there could be no view of them
}

// limits are how long Objects waits for what.
type limits struct {
	// A server that keeps us waiting for policies for longer has none.
	timeout time.Duration
	// A refusal that lasts so long is meant: rights may be granted, and kinds installed, seconds after we start.
	belief time.Duration
	// What had been read counts for so long after the server has begun to refuse it.
	grace time.Duration
}

// kind is a kind of objects, and what makes items of them.
type kind struct {
	resource     schema.GroupVersionResource
	in, name     string // "": any
	policies     bool   // until they are known, a view is unsettled
	optional     bool   // clusters that were set up by an older version do not have it
	read         func(*unstructured.Unstructured) *item
	perNamespace bool // one namespace's can be read alone, of namespaces that one
}

// knowledgeBaseName is that of the ConfigMap in kube-system where the hybrid scheduler keeps its benchmarks.
const knowledgeBaseName = "scheduler-knowledge-base"

// kinds are all kinds of objects that a view is made of.
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
		resource: v1alpha1.GroupVersion.WithResource("energybudgets"), optional: true,
		read: reading(kindBudget, readBudget), perNamespace: true,
	},
	{
		resource: v1.SchemeGroupVersion.WithResource("configmaps"), in: metav1.NamespaceSystem, name: knowledgeBaseName,
		read: reading("ConfigMap", readKnowledge),
	},
}

const (
	// settleFor is how long changes are collected before a view is built of them.
	settleFor = 50 * time.Millisecond
	// maxRest is the longest pause after a view, which is else nine times what building it took.
	maxRest = 5 * time.Second
	// lookEvery is how often we look whether caches have synced or the timeout has ended: no event tells. Once they
	// have, only what the server refuses from then on is looked for, rarely: each look wakes a processor.
	lookEvery  = 200 * time.Millisecond
	lookRarely = 5 * time.Second
)

// NewObjects returns an Objects that reads with the given rights.
func NewObjects(config *rest.Config, log *slog.Logger) (*Objects, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	o := &Objects{
		Defaults: policy.BuiltIn(), Log: log, changed: make(chan struct{}, 1),
		limits: limits{timeout: 30 * time.Second, belief: 5 * time.Second, grace: 30 * time.Second},
	}
	for i := range kinds {
		o.watches = append(o.watches, newWatched(&kinds[i], client))
	}
	return o, nil
}

// View returns what is known now. It never waits and never returns nil. Before policies are known it is unsettled.
func (o *Objects) View() *View {
	return cmp.Or(o.view.Load(), Unsettled())
}

var unsettled = View{unsettled: true}

// Unsettled returns the view that holds while the policies are not known yet.
func Unsettled() *View { return &unsettled }

// Synced reports whether everything that can be read has been read.
func (o *Objects) Synced() bool {
	now := time.Now()
	return !slices.ContainsFunc(o.watches, func(w *watched) bool { return !w.known(now, o.limits.belief) })
}

// Run watches until ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	o.began = time.Now()
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	var running sync.WaitGroup
	defer running.Wait()
	for _, w := range o.watches {
		if err := w.prepare(func() { Poke(o.changed) }, o.Log); err != nil {
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

// state is what may change without a change of any object.
func (o *Objects) state(now time.Time) (state []bool) {
	for _, w := range o.watches {
		state = append(state, w.known(now, o.limits.belief), w.withdrawn(now, o.limits.grace))
	}
	return append(state, o.waiting(now))
}

// waiting reports whether policies may still come. Once they are known they stay so.
func (o *Objects) waiting(now time.Time) bool {
	if v := o.view.Load(); v != nil && v.Settled() || now.Sub(o.began) >= o.limits.timeout {
		return false
	}
	return slices.ContainsFunc(o.watches, func(w *watched) bool { return w.policies && !w.known(now, o.limits.belief) })
}

// refresh publishes a view. Where that panics, the last one holds until something else changes. Once the timeout is
// over there is one in any case: without a view, Jobs that were created suspended would have no plan.
func (o *Objects) refresh() (took time.Duration) {
	if !panics.Survive(o.Log, "view", "building a view of the API server's objects", func() { took = o.publish() }) &&
		!o.View().Settled() && time.Since(o.began) >= o.limits.timeout {
		o.put(&Contents{Defaults: o.Defaults})
	}
	return took
}

// publish builds a view of what the caches hold, unless it would say what the last one says, and returns how long it
// took.
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

// put publishes a view of contents. If there can be none, the last one holds.
func (o *Objects) put(c *Contents) {
	v, err := c.View()
	if err != nil { // each part was checked before
		if o.failed != err.Error() {
			o.failed = err.Error()
			o.Log.Error("publishing a view: the last one holds", "error", err)
		}
		return
	}
	o.failed = ""
	o.view.Store(v)
}

// notify logs what is wrong with objects, unless it was so already when we looked last.
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
		log.Warn("a part cannot be used: deciding without it", what...)
		return
	}
	log.Warn("cannot be used: deciding without it", what...)
}
