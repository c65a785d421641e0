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

// Energy scores nodes for marked pods with a strategy of package strategy. For all other pods, and where the strategy
// has no opinion, it skips, and the scores are stock's.
//
// It filters only for what a pod asks for by name, its largest power and least efficiency, and for nodes that are too
// hot by their PowerProfile; otherwise a pod is bound wherever a node fits. Pods that are not ours pay for one map
// lookup in each of SignPod, PreFilter, PreScore and Reserve.
type Energy struct {
	args   EnergyArgs
	wheres map[string]*strategy.Greedy // that decide on one pod, by name; read only
	view   func() *kube.View
	clock  func() time.Time
	rescue rescue

	last     atomic.Pointer[string] // node of the last decision carried out
	narrowed atomic.Pointer[v1.Pod] // whose cycle was narrowed; nil: the last one was not

	live     *live.Feed                              // nil: live watts are not known
	seen     *kube.SeenWatts                         // of nodes on which others write them
	nodes    func(name string) (fwk.NodeInfo, error) // of the scheduler's snapshot, which holds still during a cycle
	batch    *batching                               // nil: nothing is planned
	retries  *retries                                // nil: no cycle is narrowed
	sleepers *sleepers                               // nil: no machine sleeps
	recorder *record.Recorder                        // nil: nothing is recorded

	mu         sync.Mutex  // cycles of a profile do not overlap, but kube-scheduler does not promise it
	shortlists *shortlists // nil: none are made
	book       nodeBook
	ranking    ranking
	scratch    scratch
	unrecorded unrecorded
}

// scratch is what every cycle fills anew, and what is not read after it.
type scratch struct {
	all      copies // of all nodes, where they are needed one by one
	refs     []*sched.Node
	costs    []float64
	queue    [1]sched.Job
	snapshot sched.Snapshot

	groups []grouped // by kind
	cycle  uint64
}

// copies are nodes of a cycle as the core sees them.
type copies struct {
	nodes []sched.Node
	refs  []*sched.Node
}

// grouped is the group of a kind in a cycle. What is left of another cycle does not count.
type grouped struct {
	cycle uint64
	group int32
	first int32 // seat of its first node by name
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
		err = common.watchNodes(d, handle)
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
	if handle == nil { // a test asks for scores alone
		return e, nil
	}
	e.nodes = func(name string) (fwk.NodeInfo, error) { return handle.SnapshotSharedLister().NodeInfos().Get(name) }
	e.sleepers = &sleepers{handle, d.Clock, lru.New(memorable)}
	e.retries = d.newRetries(klog.FromContext(ctx), handle, &common.again)
	e.shortlists = newShortlists(args.Shortlist, args.Replaces, handle)
	e.batch = d.newBatching(ctx, e, planners, handle)
	return e, nil
}

// policy is that of the profile, for pods of some weights.
func (e *Energy) policy(weights sched.Weights) sched.Policy {
	return sched.Policy{Weights: weights, MaxSignalAge: e.args.MaxSignalAge.Duration, Seed: e.args.Seed}
}

// Name implements [fwk.Plugin].
func (*Energy) Name() string { return EnergyName }

// Replaces returns the names of the score plugins that are to be skipped while the plugin scores a pod.
func (e *Energy) Replaces() []string { return e.args.Replaces }

// read returns what the pod asks of us. It is nil if that is nothing: the pod is not ours, decisions are not carried
// out in its namespace, or its annotations make no sense.
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
	if settings.ExpectedDuration == 0 {
		job.Duration = e.args.ExpectedDuration.Duration
	}
	if settings.Weights == (sched.Weights{}) {
		settings.Weights = e.args.Weights
	}
	settings.Where = cmp.Or(settings.Where, e.args.Strategy)
	return &request{view: view, job: job, settings: settings}
}

const requestKey fwk.StateKey = EnergyName + "/request"

// request is what was read from a pod of ours, and under which view.
type request struct {
	view     *kube.View
	job      sched.Job
	settings policy.Settings
	cluster  []fwk.NodeInfo

	shortlisted bool             // the cycle is narrowed to the nodes of least cost
	reason      sched.ReasonKind // of the node that was chosen, from Reserve on
}

// Clone implements [fwk.StateData]. After PreFilter a request does not change, but for its reason.
func (r *request) Clone() fwk.StateData { return r }

// request returns what PreFilter has read, nil if the pod is not ours. Most pods are not, and are spared the look
// into the cycle's state, which costs more than all the rest.
func (e *Energy) request(state fwk.CycleState, pod *v1.Pod) *request {
	if e.args.Scope != All && !e.view().Concerns(pod) {
		return nil
	}
	return noted[request](state, requestKey)
}

// noted returns what a cycle has noted under a key; nil: nothing.
func noted[T any](state fwk.CycleState, key fwk.StateKey) *T {
	data, err := state.Read(key)
	if err != nil {
		return nil
	}
	return any(data).(*T)
}

var skip = fwk.NewStatus(fwk.Skip)

// PreFilter reads the pod once per cycle, for the points that follow. It narrows the cycle to what a plan over all
// waiting pods has for this one, if there is a plan, or to the nodes of least cost, and skips Filter where there is
// nothing to filter by.
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

// PreFilterExtensions returns nil: what was read does not depend on other pods.
func (*Energy) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// PreScore takes the snapshot, asks the strategy and leaves the scores for NormalizeScore.
func (e *Energy) PreScore(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) (status *fwk.Status) {
	defer e.rescue.from("PreScore", func() { status = e.withdraw(pod, skip) })
	if r := e.request(state, pod); r != nil && (e.rankByPlan(state, r, nodes) || e.plan(r, nodes)) {
		return nil
	}
	return e.withdraw(pod, skip)
}

// withdraw returns the status of a point at which there is no opinion. It is the given one unless the cycle was
// narrowed under an opinion: then the pod is tried again on all nodes, because stock would choose among all.
func (e *Energy) withdraw(pod *v1.Pod, status *fwk.Status) *fwk.Status {
	if pod == nil || e.narrowed.Load() != pod {
		return status
	}
	return e.retries.retry(pod, "no opinion on the nodes that its cycle was narrowed to")
}

// plan ranks the nodes; ok is false where the strategy has no opinion.
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

// rankAll ranks the nodes by what the strategy says of them.
func (e *Energy) rankAll(r *request, nodes []fwk.NodeInfo) (ok bool) {
	e.ranking.begin(len(nodes))
	e.begin(r)
	s, where := &e.scratch, e.wheres[r.settings.Where]
	if where.Symmetry(&s.snapshot.Policy) == strategy.Interchangeable {
		e.offerKinds(nodes)
	} else {
		e.offerAll(nodes)
	}
	if s.costs, ok = where.Costs(&s.snapshot, &s.queue[0], s.costs); !ok {
		return false
	}
	return e.ranking.rank(s.costs)
}

// begin makes the book ready for a cycle, and the snapshot but for its nodes.
func (e *Energy) begin(r *request) {
	e.book.open(r.view, r.cluster)
	s := &e.scratch
	s.queue[0] = r.job
	s.snapshot = sched.Snapshot{
		Now: e.clock(), Queue: s.queue[:], Sites: r.view.Sites(),
		Policy: e.policy(r.settings.Weights),
	}
	if last := e.last.Load(); last != nil {
		s.snapshot.Last = *last
	}
}

// offerKinds offers the strategy one node of each kind, and makes the nodes of a kind a group. The nodes of a cluster
// are of a few kinds, and a strategy that cannot tell the nodes of one apart gives all of them the same cost.
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

// offerAll offers the strategy every node, with the watts that it draws now, each a group of its own.
func (e *Energy) offerAll(nodes []fwk.NodeInfo) {
	s := &e.scratch
	e.copyNodes(&s.all, nodes, s.snapshot.Now)
	s.snapshot.Nodes = s.all.refs
	for i, n := range s.all.refs {
		e.ranking.single(i, n.Name)
	}
}

// copyNodes copies nodes, with their live watts.
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

// Score implements [fwk.ScorePlugin]. What PreScore has found out is filled in by NormalizeScore, for all nodes at
// once: here it would have to be looked up for each.
func (*Energy) Score(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

// ScoreExtensions implements [fwk.ScorePlugin].
func (e *Energy) ScoreExtensions() fwk.ScoreExtensions { return e }

// NormalizeScore implements [fwk.ScoreExtensions]: it copies the scores that PreScore has left.
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

// undo withdraws an opinion after PreScore. The record of the decision must not give it as the reason.
func (e *Energy) undo(pod *v1.Pod) *fwk.Status {
	e.mu.Lock()
	e.unrecorded.of = nil
	e.mu.Unlock()
	return e.withdraw(pod, nil)
}

// fill copies the scores of a request's ranking; ok is false if there is none.
func (e *Energy) fill(r *request, scores fwk.NodeScoreList) (ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ok = r != nil && e.ranking.of == r; ok {
		e.ranking.fill(scores)
	}
	return ok
}

// Reserve notes the node that the scheduler chose. That is known here for sure: a single feasible node is never scored,
// and others have a say in the scores.
func (e *Energy) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	defer e.rescue.from("Reserve", nil)
	r := e.request(state, pod)
	if r == nil {
		return nil
	}
	last := nodeName // whose memory is not needed for pods that are not ours
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

// Unreserve takes back the pod's watts, and what would be recorded. The turn of round-robin stays: the decision was
// carried out, the binding failed.
func (e *Energy) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	defer e.rescue.from("Unreserve", nil)
	if noted[request](state, requestKey) == nil {
		return
	}
	e.batch.requeue(pod)
	if e.live != nil {
		e.live.Release(string(pod.UID))
	}
	e.recorder.Discard(e.takeDraft(state))
}

// EventsToRegister names what may give a pod a node that Filter has refused so far: another node, or another kind of
// hardware. Without this method every event of the cluster would count as one that we wait for.
func (*Energy) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{Event: fwk.ClusterEvent{
		Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel | fwk.UpdateNodeAnnotation,
	}}}, nil
}

// signature is what the scores of a pod depend on, besides its resources, which stock signs as well but only where it
// scores by them.
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

var unsigned = fwk.NewStatus(fwk.Unschedulable, "its score depends on other pods or nodes")

// SignPod lets kube-scheduler reuse the scores of one pod for the next that is alike, where the strategy's scores
// allow it. Pods that we do not score need no fragment of ours.
func (e *Energy) SignPod(_ context.Context, pod *v1.Pod) (_ []fwk.SignFragment, status *fwk.Status) {
	defer e.rescue.from("SignPod", func() { status = unsigned })
	r := e.read(pod)
	if r == nil {
		return nil, nil
	}
	where := r.settings.Where
	// Where a plan says which node a pod goes to, the scores of its twin say nothing. And kube-scheduler tries the
	// hint that comes with a signature before it narrows a cycle: signed pods would go where the one before would
	// have gone next.
	if e.batch.plans(where) || !e.wheres[where].NodeLocal(&sched.Policy{Seed: e.args.Seed}) {
		return nil, unsigned
	}
	return []fwk.SignFragment{{Key: "kubenergy.io/" + EnergyName, Value: signature{
		Where: where, Duration: r.job.Duration, Request: r.job.Request, Weights: r.settings.Weights,
		NoCarbon: r.job.Limits.NoCarbon, GPUClass: r.job.GPUClass, PUE: r.job.PUE,
		MaxPower: float64(r.settings.MaxPower), MinEfficiency: r.settings.MinEfficiency,
	}}}, nil
}
