package live

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/sched"
)

const (
	period = 15 * time.Second
	maxAge = 45 * time.Second // of a reading
	jitter = 0.1              // of a period: not all replicas ask at once
)

// Feed holds the last answers. A nil Feed knows nothing.
type Feed struct {
	now              func() time.Time // ages are by this clock, whatever time the scheduler plays
	log              *slog.Logger
	client           *apiclient.Client
	nodes, workloads route

	reserved reservations // and the readings
	expected atomic.Pointer[workloadTable]
	hot      atomic.Pointer[map[string]sched.Heat] // nodes that are too hot; nil: no answer has come
}

// New checks the options. Files are read when they are needed: they may come later.
func New(o apiclient.Options, log *slog.Logger) (*Feed, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	client, err := apiclient.New(o)
	if err != nil {
		return nil, fmt.Errorf("asking for live watts: %w", err)
	}
	metrics.Register()
	youngest.WithLabelValues().Set(-1)
	return &Feed{
		now: o.Now, log: log, client: client,
		reserved:  reservations{byNode: map[string][]reservation{}, nodeOf: map[string]string{}},
		nodes:     route{name: "nodes", path: "/api/v1/nodes/power"},
		workloads: route{name: "workloads", path: "/api/v1/workloads/power"},
	}, nil
}

// Run asks until the context ends. A panic counts as a failure: what was known before stays until it is too old, and
// scheduling goes on.
func (f *Feed) Run(ctx context.Context) error {
	if f == nil {
		return nil
	}
	defer f.client.Close()
	rest := func(ctx context.Context, pause time.Duration) {
		kube.Pause(ctx, cmp.Or(pause, time.Duration(float64(period)*(1+jitter*(2*rand.Float64()-1)))))
	}
	apiclient.Keep(ctx, f.Ask, rest, func(what any) {
		panicked.WithLabelValues().Inc()
		panics.Note("live")
		f.log.Error("asking for live watts panicked: trying again", "panic", what, "stack", string(debug.Stack()))
	})
	return nil
}

// Ask asks once. It returns whether the controller told what nodes draw: the watts of workloads are a help, no need.
func (f *Feed) Ask(ctx context.Context) bool {
	var nodes api.NodesPower
	skew, news, err := f.get(ctx, &f.nodes, &nodes)
	now := f.now()
	var table *nodeTable
	if news {
		table = readNodes(&nodes, skew, now)
		f.hot.Store(new(nodes.Hot(now, skew)))
	}
	reserved, age := f.reserved.update(table, now)
	provisional.WithLabelValues().Set(float64(reserved))
	youngest.WithLabelValues().Set(age.Seconds())
	var workloads api.WorkloadsPower
	if _, news, _ := f.get(ctx, &f.workloads, &workloads); news {
		f.expected.Store(new(newWorkloadTable(&workloads)))
	}
	return err == nil
}

// readNodes returns what of an answer can be used, and counts the rest.
func readNodes(answer *api.NodesPower, skew time.Duration, now time.Time) *nodeTable {
	table, left := newNodeTable(answer, skew, now)
	nodesKnown.WithLabelValues("fresh").Set(float64(len(table.byName) - left.implausible))
	nodesKnown.WithLabelValues("implausible").Set(float64(left.implausible))
	nodesKnown.WithLabelValues("old").Set(float64(left.old))
	nodesKnown.WithLabelValues("absurd").Set(float64(left.absurd))
	return &table
}

// Fill sets what nodes draw now, and what was placed on them since. What is not known stays as it is; a value that a
// model of the hardware contradicts is none, even where another source tells one.
func (f *Feed) Fill(nodes []sched.Node) {
	f.reserved.fill(nodes, f.now().Add(-maxAge).UnixNano())
}

// AnyHot reports whether some node may be too hot.
func (f *Feed) AnyHot() bool { return f != nil && f.hot.Load() != nil && len(*f.hot.Load()) > 0 }

// TooHot reports whether a node is too hot to take pods, and why.
func (f *Feed) TooHot(node string) (why string, tooHot bool) {
	if !f.AnyHot() {
		return "", false
	}
	return (*f.hot.Load())[node].Refuses(f.now())
}

// Expected returns what a pod of one of some owners is expected to draw; they are tried in their order. The fewer of
// them were measured, the closer it is to the nominal power given.
func (f *Feed) Expected(owners []Owner, nominal energy.Watts) (energy.Watts, bool) {
	if f == nil {
		return 0, false
	}
	if table := f.expected.Load(); table != nil {
		return table.expected(owners, nominal)
	}
	return 0, false
}

// Reserve notes that a pod was placed on a node where it will draw so much.
func (f *Feed) Reserve(podUID, node string, power energy.Watts) {
	f.reserved.add(podUID, node, power, f.now())
}

// Release notes that it was not, after all.
func (f *Feed) Release(podUID string) { f.reserved.remove(podUID) }
