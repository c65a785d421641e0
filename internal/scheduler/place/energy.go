package place

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/scheduler/batch"
	"github.com/kubenergy/kubenergy/internal/scheduler/live"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// EnergyName is the name of [Energy] in KubeSchedulerConfiguration.
const EnergyName = "KubEnergy"

// Energy scores nodes for marked pods with a strategy of package strategy. For all other pods, and if the strategy
// has no opinion, it returns Skip, so that the scores are those of an unmodified kube-scheduler.
//
// It only filters nodes by the max power and min efficiency that a pod requires explicitly, and by the max
// temperature of their PowerProfile. Otherwise it never prevents a pod from being scheduled. For unmarked pods, the
// overhead is one map lookup in each of SignPod, PreFilter, PreScore and Reserve.
type Energy struct {
	args   EnergyArgs
	wheres map[string]*strategy.Greedy // strategies for single pods by name; read-only
	view   func() *kube.View
	clock  func() time.Time
	rescue rescue

	last     atomic.Pointer[string] // node of the last placement
	narrowed atomic.Pointer[v1.Pod] // pod of the current cycle if it was narrowed, otherwise nil

	live *live.Feed      // nil if live power is not available
	seen *kube.SeenWatts // changes of the power in node annotations
	// reads the scheduler's snapshot, which is immutable during a cycle
	nodes    func(name string) (fwk.NodeInfo, error)
	arrivals *arrivals        // nil if no room is left for the next pods
	batch    *batching        // nil if pods are not planned
	retries  *retries         // nil disables narrowing
	sleepers *sleepers        // nil if nodes never sleep
	recorder *record.Recorder // nil disables recording

	// guards the following fields, since kube-scheduler does not guarantee that cycles never overlap
	mu         sync.Mutex
	shortlists *shortlists // nil disables shortlists
	book       nodeBook
	outlook    outlook
	ranking    ranking
	scratch    scratch
	unrecorded unrecorded
}

// scratch contains buffers that each cycle fills again. They are not read after the cycle.
type scratch struct {
	all      copies // of all nodes, if these are priced individually
	refs     []*sched.Node
	costs    []float64
	queue    [1]sched.Job
	snapshot sched.Snapshot

	groups []grouped // by kind
	cycle  uint64
}

// copies contains the nodes of a cycle in the representation of package sched.
type copies struct {
	nodes []sched.Node
	refs  []*sched.Node
}

// grouped is the group of a kind in a cycle. It is invalid in other cycles.
type grouped struct {
	cycle uint64
	group int32
	first int32 // seat of the first node by name
}

var (
	_ fwk.PreFilterPlugin   = &Energy{}
	_ fwk.FilterPlugin      = &Energy{}
	_ fwk.PostFilterPlugin  = &Energy{}
	_ fwk.PreScorePlugin    = &Energy{}
	_ fwk.ScorePlugin       = &Energy{}
	_ fwk.ScoreExtensions   = &Energy{}
	_ fwk.ReservePlugin     = &Energy{}
	_ fwk.PostBindPlugin    = &Energy{}
	_ fwk.SignPlugin        = &Energy{}
	_ fwk.EnqueueExtensions = &Energy{}
)

func (d Deps) newEnergy(ctx context.Context, obj runtime.Object, handle fwk.Handle,
	common *shared,
) (fwk.Plugin, error) {
	args, err := decodeArgs(obj)
	if err == nil && handle != nil {
		common.watchPods(d.Gate, handle)
		err = common.watchCluster(d, handle)
	}
	if err != nil {
		return nil, fmt.Errorf("building plugin %s: %w", EnergyName, err)
	}
	names, _ := strategy.Names()
	wheres, planners := map[string]*strategy.Greedy{}, map[string]batch.Strategy{}
	for _, name := range names {
		strategy, err := strategy.New(name)
		if err != nil {
			return nil, err
		}
		if wheres[name] = strategy.Alone(); strategy.Batches() {
			planners[name] = strategy
		}
	}
	e := &Energy{
		args: args, wheres: wheres, view: d.View, clock: d.Clock, rescue: rescue{log: d.Log},
		live: d.Live, recorder: d.Recorder, seen: &common.seen,
	}
	if handle == nil { // a test that only needs scores
		return e, nil
	}
	e.nodes = func(name string) (fwk.NodeInfo, error) { return handle.SnapshotSharedLister().NodeInfos().Get(name) }
	e.arrivals = &common.arrivals
	e.sleepers = &sleepers{handle, d.Clock, lru.New(memorable)}
	e.retries = d.newRetries(klog.FromContext(ctx), handle, &common.again)
	e.shortlists = newShortlists(args.Shortlist, args.Replaces, handle)
	e.batch = d.newBatching(ctx, e, planners, handle)
	common.energies[handle.ProfileName()] = e
	return e, nil
}

// policy returns the policy of the profile for pods with the given weights.
func (e *Energy) policy(weights sched.Weights) sched.Policy {
	return sched.Policy{Weights: weights, MaxSignalAge: e.args.MaxSignalAge.Duration, Seed: e.args.Seed}
}

// Name implements [fwk.Plugin].
func (*Energy) Name() string { return EnergyName }

// Replaces returns the names of the score plugins that are skipped for pods that the plugin scores.
func (e *Energy) Replaces() []string { return e.args.Replaces }

// read returns the request of the pod. It returns nil if the pod is not marked, its annotations are invalid, or
// decisions are not enforced in its namespace.
func (e *Energy) read(pod *v1.Pod) *request {
	if panics.Open() {
		return nil
	}
	view := e.view()
	if e.args.Scope != All && (!view.Settled() || !view.Concerns(pod)) {
		return nil
	}
	work, err := policy.ReadPod(pod)
	job, settings := view.Settle(&work)
	if e.args.Scope != All && (err != nil || !settings.Enforced()) {
		return nil
	}
	if job.Foresee(); settings.ExpectedDuration == 0 && job.Runtimes == nil {
		job.Duration = e.args.ExpectedDuration.Duration
	}
	if settings.Weights == (sched.Weights{}) {
		settings.Weights = e.args.Weights
	}
	settings.Where = cmp.Or(settings.Where, e.args.Strategy)
	return &request{view: view, job: job, settings: settings}
}

const requestKey fwk.StateKey = EnergyName + "/request"

// request contains the properties of a marked pod and the view under which they were read.
type request struct {
	view     *kube.View
	job      sched.Job
	settings policy.Settings
	cluster  []fwk.NodeInfo
	ahead    []sched.Demand // pods to leave room for

	shortlisted bool             // the cycle is narrowed to the cheapest nodes
	reason      sched.ReasonKind // reason for choosing the node, set by Reserve
}

// Clone implements [fwk.StateData]. It does not copy, because a request does not change after PreFilter except for
// its reason.
func (r *request) Clone() fwk.StateData { return r }

// request returns the request that PreFilter stored, or nil if the pod is not marked. Most pods are not marked, and
// for these it avoids reading the cycle state, which is comparatively expensive.
func (e *Energy) request(state fwk.CycleState, pod *v1.Pod) *request {
	if e.args.Scope != All && !e.view().Concerns(pod) {
		return nil
	}
	return noted[request](state, requestKey)
}

// noted returns the value that the cycle state contains for the key, or nil if there is none.
func noted[T any](state fwk.CycleState, key fwk.StateKey) *T {
	data, err := state.Read(key)
	if err != nil {
		return nil
	}
	return any(data).(*T)
}

var skip = fwk.NewStatus(fwk.Skip)

// PreFilter reads the pod once per cycle for the following extension points. It narrows the cycle to the nodes of a
// joint plan if there is one, or otherwise to the cheapest nodes if possible. Filter is skipped if it is not
// needed.
func (e *Energy) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) (_ *fwk.PreFilterResult, status *fwk.Status) {
	defer e.rescue.from("PreFilter", func() { status = skip })
	e.narrowed.Store(nil)
	e.retries.wakeFailed(pod)
	r := e.read(pod)
	if r == nil {
		return nil, skip
	}
	r.cluster = nodes
	e.fillExpected(r, pod)
	state.Write(requestKey, r)
	narrowed := e.narrowToPlan(state, r, pod, nodes)
	if narrowed == nil {
		r.ahead = e.lookAhead(r, pod)
		narrowed = e.narrowToCheapest(r, pod, nodes)
	}
	if narrowed != nil {
		e.narrowed.Store(pod)
		return narrowed, nil
	}
	if r.settings.MaxPower == 0 && r.settings.MinEfficiency == 0 && !e.live.AnyHot() {
		return nil, skip
	}
	return nil, nil
}

// PreFilterExtensions returns nil, because the request does not depend on other pods.
func (*Energy) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// PreScore computes the scores with the strategy and stores them for NormalizeScore.
func (e *Energy) PreScore(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) (status *fwk.Status) {
	defer e.rescue.from("PreScore", func() { status = e.withdraw(pod, skip) })
	if r := e.request(state, pod); r != nil && (e.rankByPlan(state, r, nodes) || e.plan(r, nodes)) {
		return nil
	}
	return e.withdraw(pod, skip)
}

// withdraw returns the status of an extension point at which the plugin has no opinion. This is the given status
// unless the cycle was narrowed. In that case, the pod is retried on all nodes, because the default scores must
// choose among all of them.
func (e *Energy) withdraw(pod *v1.Pod, status *fwk.Status) *fwk.Status {
	if pod == nil || e.narrowed.Load() != pod {
		return status
	}
	return e.retries.retry(pod, "no opinion on the nodes of the narrowed cycle")
}

// plan ranks the nodes. ok is false if the strategy has no opinion.
func (e *Energy) plan(r *request, nodes []fwk.NodeInfo) (ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ranking.begin(len(nodes))
	if !e.rankShort(r, nodes) && !e.rankAll(r, nodes) {
		return false
	}
	e.ranking.of = r
	e.keepSnapshot(r, nodes)
	return true
}

// rankAll ranks all nodes by the costs that the strategy returns.
func (e *Energy) rankAll(r *request, nodes []fwk.NodeInfo) (ok bool) {
	e.ranking.begin(len(nodes))
	e.begin(r)
	s, where := &e.scratch, e.wheres[r.settings.Where]
	if where.Symmetry(&s.snapshot.Policy) == strategy.Interchangeable && len(r.ahead) == 0 {
		e.offerKinds(nodes)
	} else {
		e.offerAll(nodes)
	}
	if s.costs, ok = where.Costs(&s.snapshot, &s.queue[0], s.costs); !ok {
		return false
	}
	return e.ranking.rank(s.costs)
}

// begin prepares the node book and the snapshot for a cycle, except for the nodes of the snapshot.
func (e *Energy) begin(r *request) {
	e.book.open(r.view, r.cluster)
	s := &e.scratch
	s.queue[0] = r.job
	s.snapshot = sched.Snapshot{
		Now: e.clock(), Queue: s.queue[:], Sites: r.view.Sites(),
		Policy: e.policy(r.settings.Weights), Ahead: r.ahead,
	}
	if last := e.last.Load(); last != nil {
		s.snapshot.Last = *last
	}
}

// offerKinds adds one node of each kind to the snapshot, and groups the nodes by kind. A cluster has few kinds of
// nodes, and an interchangeable strategy returns the same cost for all nodes of a kind.
func (e *Energy) offerKinds(nodes []fwk.NodeInfo) {
	s, r := &e.scratch, &e.ranking
	s.cycle++
	s.refs = s.refs[:0]
	for i, n := range nodes {
		at := e.book.find(n)
		seat := &e.book.seats[at]
		for int(seat.kind) >= len(s.groups) {
			s.groups = append(s.groups, grouped{})
		}
		g := &s.groups[seat.kind]
		switch {
		case g.cycle != s.cycle:
			*g = grouped{cycle: s.cycle, group: int32(len(s.refs)), first: at}
			s.refs = append(s.refs, &e.book.ofKind[seat.kind])
			r.first = append(r.first, int32(i))
		case e.book.before(at, g.first):
			g.first, r.first[g.group] = at, int32(i)
		}
		r.names[i], r.group[i] = seat.name, g.group
	}
	s.snapshot.Nodes = s.refs
}

// offerAll adds every node to the snapshot with its live power, and makes each node a separate group.
func (e *Energy) offerAll(nodes []fwk.NodeInfo) {
	s := &e.scratch
	e.copyNodes(&s.all, nodes, s.snapshot.Now)
	e.addEnds(&s.all, nodes, &s.snapshot)
	s.snapshot.Nodes = s.all.refs
	for i, n := range s.all.refs {
		e.ranking.single(i, n.Name)
	}
}

// copyNodes copies nodes and sets their live power.
func (e *Energy) copyNodes(to *copies, nodes []fwk.NodeInfo, now time.Time) {
	to.nodes, to.refs = to.nodes[:0], to.refs[:0]
	for _, n := range nodes {
		to.nodes = append(to.nodes, e.book.nodes[e.book.find(n)])
		e.annotated(&to.nodes[len(to.nodes)-1], n, now)
	}
	if e.live != nil {
		e.live.Fill(to.nodes)
	}
	for i := range to.nodes {
		to.refs = append(to.refs, &to.nodes[i])
	}
}

// Score implements [fwk.ScorePlugin]. NormalizeScore writes the scores of all nodes, because Score would need a
// lookup for each node.
func (*Energy) Score(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

// ScoreExtensions implements [fwk.ScorePlugin].
func (e *Energy) ScoreExtensions() fwk.ScoreExtensions { return e }

// NormalizeScore implements [fwk.ScoreExtensions]. It writes the scores that PreScore computed.
func (e *Energy) NormalizeScore(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	scores fwk.NodeScoreList,
) (status *fwk.Status) {
	defer e.rescue.from("NormalizeScore", func() {
		for i := range scores {
			scores[i].Score = 0
		}
		status = e.undo(pod)
	})
	if !e.fill(e.request(state, pod), scores) {
		return e.undo(pod)
	}
	return nil
}

// undo withdraws an opinion after PreScore, so that the record of the decision does not contain it as the reason.
func (e *Energy) undo(pod *v1.Pod) *fwk.Status {
	e.mu.Lock()
	e.unrecorded.of = nil
	e.mu.Unlock()
	return e.withdraw(pod, nil)
}

// fill writes the scores of the request's ranking. ok is false if there is no such ranking.
func (e *Energy) fill(r *request, scores fwk.NodeScoreList) (ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ok = r != nil && e.ranking.of == r; ok {
		e.ranking.fill(scores)
	}
	return ok
}

// Reserve records the chosen node. The choice is not known earlier, because a single feasible node is not scored,
// and other plugins contribute to the scores.
func (e *Energy) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	defer e.rescue.from("Reserve", nil)
	r := e.request(state, pod)
	if r == nil {
		return nil
	}
	e.arrivals.reserved(pod, e.clock(), true)
	last := nodeName // copied here, so that no memory is allocated for unmarked pods
	e.last.Store(&last)
	e.reserveWatts(r, pod, nodeName)
	if r.shortlisted {
		e.shortlistServed()
	}
	e.batch.countPlacement(state, nodeName)
	e.noteReason(state, r, nodeName)
	if e.recorder.Enabled() {
		e.draft(state, r, pod, nodeName)
	}
	return nil
}

// Unreserve releases the reserved power and discards the draft of the record. The state of the round-robin strategy
// is not reverted, because the placement was made and only the binding failed.
func (e *Energy) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	defer e.rescue.from("Unreserve", nil)
	if noted[request](state, requestKey) == nil {
		return
	}
	e.batch.requeue(pod)
	e.arrivals.reserved(pod, e.clock(), false)
	if e.live != nil {
		e.live.Release(string(pod.UID))
	}
	e.recorder.Discard(e.takeDraft(state))
}

// EventsToRegister returns the events that may make a pod schedulable that Filter has rejected, which are new nodes
// and changes to the hardware of nodes. Without this method, kube-scheduler would retry the pod on every event.
func (*Energy) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{Event: fwk.ClusterEvent{
		Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeAnnotation,
	}}}, nil
}

// signature contains everything that the scores of a pod depend on. It includes the resource requests, because
// kube-scheduler signs these only if they affect its own scores.
type signature struct {
	Where         string
	Duration      time.Duration
	Request       sched.Resources
	Weights       sched.Weights `json:",omitzero"`
	NoCarbon      bool          `json:",omitzero"`
	GPUClass      string        `json:",omitzero"`
	PUE           float64       `json:",omitzero"`
	MaxPower      float64       `json:",omitzero"`
	MinEfficiency float64       `json:",omitzero"`
}

var unsigned = fwk.NewStatus(fwk.Unschedulable, "the score depends on other pods or nodes")

// SignPod lets kube-scheduler reuse the scores of a pod for similar pods if the strategy permits this. For unmarked
// pods it returns no fragment.
func (e *Energy) SignPod(_ context.Context, pod *v1.Pod) (_ []fwk.SignFragment, status *fwk.Status) {
	defer e.rescue.from("SignPod", func() { status = unsigned })
	r := e.read(pod)
	if r == nil {
		return nil, nil
	}
	where := r.settings.Where
	// Scores of a planned pod are not valid for similar pods, because they depend on the plan. In addition,
	// kube-scheduler tries the hint of a signature before it narrows a cycle, so a signed pod would be placed on
	// the second-best node of the previous pod.
	if e.batch.plans(where) || !e.wheres[where].NodeLocal(&sched.Policy{Seed: e.args.Seed}) ||
		e.wheres[where].LeavesRoom() {
		return nil, unsigned
	}
	return []fwk.SignFragment{{Key: "kubenergy.io/" + EnergyName, Value: signature{
		Where: where, Duration: r.job.Duration, Request: r.job.Request, Weights: r.settings.Weights,
		NoCarbon: r.job.Limits.NoCarbon, GPUClass: r.job.GPUClass, PUE: r.job.PUE,
		MaxPower: float64(r.settings.MaxPower), MinEfficiency: r.settings.MinEfficiency,
	}}}, nil
}
