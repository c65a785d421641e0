package live

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	maxAge = 45 * time.Second // max age of a reading
	jitter = 0.1              // fraction of the period by which requests of different replicas are spread
)

// Feed stores the last responses. A nil Feed has no data.
type Feed struct {
	now              func() time.Time // actual time, which determines ages even if the scheduler uses a simulated clock
	log              *slog.Logger
	client           *apiclient.Client
	nodes, workloads route

	reserved reservations // also contains the readings
	expected atomic.Pointer[workloadTable]
	hot      atomic.Pointer[map[string]sched.Heat] // nodes that are too hot; nil before the first response
}

// New returns a feed. It validates the options, but reads the files when they are needed, because they may be
// created later.
func New(o apiclient.Options, log *slog.Logger) (*Feed, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	client, err := apiclient.New(o)
	if err != nil {
		return nil, fmt.Errorf("requesting live power: %w", err)
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

// Run sends requests until the context is done. A panic is treated like a failed request: earlier data remains in
// use until it expires.
func (f *Feed) Run(ctx context.Context) error {
	if f == nil {
		return nil
	}
	defer f.client.Close()
	rest := func(ctx context.Context, pause time.Duration) {
		kube.Pause(ctx, cmp.Or(pause, time.Duration(float64(period)*(1+jitter*(2*rand.Float64()-1)))))
	}
	apiclient.Keep(ctx, func(ctx context.Context) (ok bool) {
		if !panics.Survive(f.log, "live", "requesting live power", func() { ok = f.Ask(ctx) }) {
			panicked.WithLabelValues().Inc()
		}
		return ok
	}, rest)
	return nil
}

// Ask sends one request per endpoint. It reports whether the power of nodes was received. The power of workloads is
// optional.
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

// readNodes returns the valid readings of a response and counts the others.
func readNodes(answer *api.NodesPower, skew time.Duration, now time.Time) *nodeTable {
	table, left := newNodeTable(answer, skew, now)
	nodesKnown.WithLabelValues("fresh").Set(float64(len(table.byName) - left.implausible))
	nodesKnown.WithLabelValues("implausible").Set(float64(left.implausible))
	nodesKnown.WithLabelValues("old").Set(float64(left.old))
	nodesKnown.WithLabelValues("absurd").Set(float64(left.absurd))
	return &table
}

// Fill sets the live power of nodes and the expected power of pods that were placed on them since. Nodes without a
// reading are not modified. If a reading is implausible according to the hardware model, the live power of the node
// is removed, even if it comes from another source.
func (f *Feed) Fill(nodes []sched.Node) {
	f.reserved.fill(nodes, f.now().Add(-maxAge).UnixNano())
}

// AnyHot reports whether any node may be too hot.
func (f *Feed) AnyHot() bool { return f != nil && f.hot.Load() != nil && len(*f.hot.Load()) > 0 }

// TooHot reports whether a node is too hot for further pods, and the reason.
func (f *Feed) TooHot(node string) (why string, tooHot bool) {
	if !f.AnyHot() {
		return "", false
	}
	return (*f.hot.Load())[node].Refuses(f.now())
}

// Expected returns the expected power of a pod of the first owner with measurements. The fewer samples there are,
// the closer the result is to the nominal power.
func (f *Feed) Expected(owners []Owner, nominal energy.Watts) (energy.Watts, bool) {
	if f == nil {
		return 0, false
	}
	if table := f.expected.Load(); table != nil {
		return table.expected(owners, nominal)
	}
	return 0, false
}

// Reserve records that a pod with the given expected power was placed on a node.
func (f *Feed) Reserve(podUID, node string, power energy.Watts) {
	f.reserved.add(podUID, node, power, f.now())
}

// Release removes the reservation of a pod.
func (f *Feed) Release(podUID string) { f.reserved.remove(podUID) }
