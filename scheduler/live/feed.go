package live

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/central"
	"github.com/kubenergy/kubenergy/central/api"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/sched"
)

// Config is what a Feed needs.
type Config struct {
	URL       string // of the central unit, as https://kubenergy-controller.kubenergy-system.svc:9443
	TokenFile string // of a bearer token; read before each request, because tokens are rotated. "": none
	// certificates that the central unit's is signed by; read before each request. "": the system's
	CAFile string
	Period time.Duration    // 0: 15 s
	MaxAge time.Duration    // of a reading; 0: 45 s
	Now    func() time.Time // nil: time.Now; ages are by this clock, whatever time the scheduler plays
	Log    *slog.Logger     // nil: silence

	transport http.RoundTripper // in place of the network, for tests
}

const (
	defaultPeriod = 15 * time.Second
	defaultMaxAge = 45 * time.Second
	longestPause  = time.Minute // after failures
	jitter        = 0.1         // of a period: not all replicas ask at once
)

// Feed holds the last answers. A nil Feed knows nothing.
type Feed struct {
	c         Config
	client    *central.Client
	nodes     *route
	workloads *route

	reserved reservations // and the readings
	expected atomic.Pointer[workloadTable]
}

// New checks the configuration. Files are read when they are needed: they may come later.
func New(c Config) (*Feed, error) {
	c.Period, c.MaxAge = cmp.Or(c.Period, defaultPeriod), cmp.Or(c.MaxAge, defaultMaxAge)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	client, err := central.New(central.Options{
		URL: c.URL, TokenFile: c.TokenFile, CAFile: c.CAFile, UserAgent: "kubenergy-scheduler", Now: c.Now,
		Transport: c.transport,
	})
	if err != nil {
		return nil, fmt.Errorf("asking for live watts: %w", err)
	}
	registerMetrics()
	oldest.Set(-1)
	return &Feed{
		c: c, client: client, nodes: &route{client: client, name: pathNodes, path: "/api/v1/nodes/power"},
		workloads: &route{client: client, name: pathWorkloads, path: "/api/v1/workloads/power"},
	}, nil
}

// Run asks until the context ends.
func (f *Feed) Run(ctx context.Context) error {
	defer f.client.Close()
	failures := 0
	for {
		if f.guarded(ctx) {
			failures = 0
		} else {
			failures++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.pause(failures)):
		}
	}
}

// guarded asks once. A mistake of ours counts as a failure: what was known before stays until it is too old, and
// scheduling goes on.
func (f *Feed) guarded(ctx context.Context) (ok bool) {
	defer func() {
		if what := recover(); what != nil {
			panics.Inc()
			f.c.Log.Error("asking for live watts panicked: trying again", "panic", what, "stack", string(debug.Stack()))
			ok = false
		}
	}()
	return f.Ask(ctx)
}

// pause returns how long to wait after so many failures in a row.
func (f *Feed) pause(failures int) time.Duration {
	if failures == 0 {
		return time.Duration(float64(f.c.Period) * (1 + jitter*(2*rand.Float64()-1)))
	}
	const first, doublings = time.Second, 6
	longest := min(first<<min(failures-1, doublings), longestPause)
	return longest/2 + rand.N(longest/2)
}

// Ask asks once. It reports whether the nodes' watts were told: those of workloads are a help, no need.
func (f *Feed) Ask(ctx context.Context) bool {
	var nodes api.NodesPower
	skew, news, err := f.nodes.get(ctx, &nodes)
	if err != nil {
		f.complain(ctx, f.nodes, err)
	} else if f.nodes.failing = false; news {
		f.adopt(&nodes, skew)
	}
	now := f.c.Now()
	reservedNow.Set(float64(f.reserved.adopt(nil, now)))
	oldest.Set(f.reserved.age(now).Seconds())
	var workloads api.WorkloadsPower
	if _, news, err := f.workloads.get(ctx, &workloads); err != nil {
		f.complain(ctx, f.workloads, err)
	} else if f.workloads.failing = false; news {
		f.expected.Store(newWorkloadTable(&workloads))
	}
	return err == nil
}

// complain logs the first of several failures.
func (f *Feed) complain(ctx context.Context, r *route, err error) {
	if ctx.Err() == nil && !r.failing {
		f.c.Log.Warn("live watts cannot be read: deciding without what is older than its age allows", "what", r.name,
			"error", err)
		r.failing = true
	}
}

// adopt publishes an answer.
func (f *Feed) adopt(answer *api.NodesPower, skew time.Duration) {
	now := f.c.Now()
	table, left := newNodeTable(answer, skew, now, f.c.MaxAge)
	f.reserved.adopt(table, now)
	nodesKnown.WithLabelValues("fresh").Set(float64(len(table.byName) - left.implausible))
	nodesKnown.WithLabelValues("implausible").Set(float64(left.implausible))
	nodesKnown.WithLabelValues("old").Set(float64(left.old))
	nodesKnown.WithLabelValues("absurd").Set(float64(left.absurd))
}

// Fill sets what nodes draw now, and what was placed on them since. What is not known stays as it is; a value that a
// model of the hardware contradicts is none, whoever else tells one.
func (f *Feed) Fill(nodes []sched.Node) {
	f.reserved.fill(nodes, f.c.Now().Add(-f.c.MaxAge).UnixNano())
}

// Expected returns what a pod of one of some owners is expected to draw; they are tried in their order. The fewer of
// them were measured, the closer it is to the nominal power given.
func (f *Feed) Expected(owners []Owner, nominal energy.Watts) (energy.Watts, bool) {
	if f == nil {
		return 0, false
	}
	return f.expected.Load().expected(owners, nominal)
}

// Reserve notes that a pod was placed on a node where it will draw so much.
func (f *Feed) Reserve(podUID, node string, power energy.Watts) {
	f.reserved.add(podUID, node, power, f.c.Now())
}

// Release notes that it was not, after all.
func (f *Feed) Release(podUID string) { f.reserved.remove(podUID) }
