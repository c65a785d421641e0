package plugin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/live"
	"github.com/kubenergy/kubenergy/kube/record"
	"github.com/kubenergy/kubenergy/sched"
)

// EnergyName is the name of [Energy] in KubeSchedulerConfiguration.
const EnergyName = "KubEnergy"

// Energy scores nodes for marked pods with a strategy of package sched. For all other pods, and where the strategy has no
// opinion, it skips, and the scores are stock's.
//
// It filters only for what a pod asks for by name, its largest power and least efficiency; otherwise a pod is bound
// wherever a node fits. Pods that are not ours pay for a few map lookups in PreFilter, and one in Reserve and in PostBind.
type Energy struct {
	args   EnergyArgs
	wheres map[string]*sched.Greedy // read only
	view   func() *kube.View
	clock  func() time.Time
	rescue rescue

	last atomic.Pointer[string] // node of the last decision carried out

	live     *live.Feed                              // nil: nobody tells live watts
	nodes    func(name string) (fwk.NodeInfo, error) // of the scheduler's snapshot
	recorder *record.Recorder                        // nil: nobody is told what was decided

	mu         sync.Mutex // cycles of a profile do not overlap, but nobody promises it
	scratch    scratch
	unrecorded unrecorded
}

// scratch is what PreScore fills anew in every cycle and nobody reads after it.
type scratch struct {
	nodes  []sched.Node
	refs   []*sched.Node
	costs  []float64
	scores []int64
	queue  [1]sched.Job
}

var (
	_ fwk.PreFilterPlugin   = &Energy{}
	_ fwk.FilterPlugin      = &Energy{}
	_ fwk.PreScorePlugin    = &Energy{}
	_ fwk.ScorePlugin       = &Energy{}
	_ fwk.ReservePlugin     = &Energy{}
	_ fwk.PostBindPlugin    = &Energy{}
	_ fwk.SignPlugin        = &Energy{}
	_ fwk.EnqueueExtensions = &Energy{}
)

func (d Deps) newEnergy(_ context.Context, obj runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := decodeArgs(obj)
	if err != nil {
		return nil, fmt.Errorf("building plugin %s: %w", EnergyName, err)
	}
	names, _ := sched.Names()
	wheres := make(map[string]*sched.Greedy, len(names))
	for _, name := range names {
		if wheres[name], err = sched.New(name); err != nil {
			return nil, err
		}
	}
	return &Energy{
		args: args, wheres: wheres, view: d.View, clock: d.Clock, rescue: rescue{log: d.Log},
		live: d.Live, nodes: nodesOf(handle), recorder: d.Recorder,
	}, nil
}

// Name implements [fwk.Plugin].
func (*Energy) Name() string { return EnergyName }

// read returns what the pod asks of us. It is nil if that is nothing: the pod is not ours, decisions are not carried out
// in its namespace, or its annotations make no sense.
func (e *Energy) read(pod *v1.Pod) *request {
	view := e.view()
	if e.args.Scope != All && (!view.Settled() || !view.Concerns(pod)) {
		return nil
	}
	work, err := kube.ReadPod(pod)
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
	if settings.Where == "" {
		settings.Where, _, _ = strings.Cut(e.args.Strategy, "+")
	}
	return &request{view: view, job: job, settings: settings}
}

const rankingKey fwk.StateKey = EnergyName

// ranking is the outcome of PreScore. The scheduler's snapshot holds still during a cycle, so the address of a node
// identifies it, and looking it up hashes one word instead of a name.
type ranking map[*v1.Node]int64

// Clone implements [fwk.StateData]. A ranking never changes.
func (r ranking) Clone() fwk.StateData { return r }

const requestKey fwk.StateKey = EnergyName + "/request"

// request is what PreFilter has read from a pod of ours, and under which view.
type request struct {
	view     *kube.View
	job      sched.Job
	settings kube.Settings
}

// Clone implements [fwk.StateData]. A request never changes.
func (r *request) Clone() fwk.StateData { return r }

var skip = fwk.NewStatus(fwk.Skip)

// PreFilter reads the pod once per cycle, for the points that follow. It narrows nothing, and skips Filter where there is
// nothing to filter by.
func (e *Energy) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (_ *fwk.PreFilterResult, status *fwk.Status) {
	defer func() {
		if e.rescue.from("PreFilter", recover()) {
			status = skip
		}
	}()
	r := e.read(pod)
	if r == nil {
		return nil, skip
	}
	e.expect(r, pod)
	state.Write(requestKey, r)
	if r.settings.MaxPower == 0 && r.settings.MinEfficiency == 0 {
		return nil, skip
	}
	return nil, nil
}

// PreFilterExtensions returns nil: what was read does not depend on other pods.
func (*Energy) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// PreScore takes the snapshot, asks the strategy and leaves the scores for Score.
func (e *Energy) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) (status *fwk.Status) {
	data, err := state.Read(requestKey)
	if err != nil {
		return skip // it is not ours
	}
	defer func() {
		if e.rescue.from("PreScore", recover()) {
			status = skip
		}
	}()
	scores, ok := e.plan(data.(*request), nodes)
	if !ok {
		return skip
	}
	state.Write(rankingKey, scores)
	return nil
}

func (e *Energy) plan(r *request, nodes []fwk.NodeInfo) (ranking, bool) {
	now := e.clock()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.scratch
	s.nodes, s.refs = s.nodes[:0], s.refs[:0]
	for _, n := range nodes {
		s.nodes = append(s.nodes, coreNode(r.view, n, now))
	}
	if e.live != nil {
		e.live.Fill(s.nodes)
	}
	for i := range s.nodes {
		s.refs = append(s.refs, &s.nodes[i])
	}
	s.queue[0] = r.job
	snapshot := sched.Snapshot{
		Now: now, Queue: s.queue[:], Nodes: s.refs, Sites: r.view.Sites(),
		Policy: sched.Policy{Weights: r.settings.Weights, MaxSignalAge: e.args.MaxSignalAge.Duration, Seed: e.args.Seed},
	}
	if last := e.last.Load(); last != nil {
		snapshot.Last = *last
	}
	var ok bool
	if s.costs, ok = e.wheres[r.settings.Where].Costs(&snapshot, &s.queue[0], s.costs); !ok {
		return nil, false
	}
	if cap(s.scores) < len(nodes) {
		s.scores = make([]int64, len(nodes))
	}
	scores := s.scores[:len(nodes)]
	if !rank(s.refs, s.costs, scores) {
		return nil, false
	}
	e.keep(r, &snapshot)
	ranked := make(ranking, len(nodes))
	for i, n := range nodes {
		ranked[n.Node()] = scores[i]
	}
	return ranked, true
}

// Score implements [fwk.ScorePlugin].
func (e *Energy) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (score int64, _ *fwk.Status) {
	defer func() {
		if e.rescue.from("Score", recover()) {
			score = 0
		}
	}()
	data, err := state.Read(rankingKey)
	if err != nil {
		return 0, nil
	}
	return data.(ranking)[node.Node()], nil
}

// ScoreExtensions returns nil: scores need no second pass over all nodes.
func (*Energy) ScoreExtensions() fwk.ScoreExtensions { return nil }

// Reserve notes the node that the scheduler chose. That is known here for sure: a single feasible node is never scored,
// and others have a say in the scores.
func (e *Energy) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	data, err := state.Read(requestKey)
	if err != nil {
		return nil
	}
	last := nodeName // whose memory is not needed for pods that are not ours
	e.last.Store(&last)
	defer func() { e.rescue.from("Reserve", recover()) }()
	e.reserve(data.(*request), pod, nodeName)
	if e.recorder.On() {
		e.draft(state, data.(*request), pod, nodeName)
	}
	return nil
}

// Unreserve takes back the pod's watts, and what would be recorded. The turn of round-robin stays: the decision was carried
// out, the binding failed.
func (e *Energy) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	defer func() { e.rescue.from("Unreserve", recover()) }()
	if _, err := state.Read(requestKey); err != nil {
		return
	}
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
	Class         string        `json:",omitzero"`
	PUE           float64       `json:",omitzero"`
	Performance   float64       `json:",omitzero"`
	MaxPower      float64       `json:",omitzero"`
	MinEfficiency float64       `json:",omitzero"`
}

var unsigned = fwk.NewStatus(fwk.Unschedulable, "its score depends on other pods or nodes")

// SignPod lets kube-scheduler reuse the scores of one pod for the next that is alike. Pods that we do not score need no
// fragment of ours.
func (e *Energy) SignPod(_ context.Context, pod *v1.Pod) (_ []fwk.SignFragment, status *fwk.Status) {
	defer func() {
		if e.rescue.from("SignPod", recover()) {
			status = unsigned
		}
	}()
	r := e.read(pod)
	if r == nil {
		return nil, nil
	}
	where := r.settings.Where
	// None would be the same for the next pod: a turn, what nodes draw just now, ties broken by the pod's name.
	if where == "round-robin" || e.wheres[where].ReadsLive() || where == "least-allocated" && e.args.Seed != 0 {
		return nil, unsigned
	}
	return []fwk.SignFragment{{Key: "kubenergy.io/" + EnergyName, Value: signature{
		Where: where, Duration: r.job.Duration, Request: r.job.Request, Weights: r.settings.Weights, Class: r.job.Class,
		PUE: r.job.PUE, Performance: r.job.PerformanceWeight,
		MaxPower: float64(r.settings.MaxPower), MinEfficiency: r.settings.MinEfficiency,
	}}}, nil
}
