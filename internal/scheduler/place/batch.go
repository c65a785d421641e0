package place

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/batch"
)

// batching makes the cycles of a profile follow joint plans for the waiting pods. A nil batching does nothing.
//
// The cycle of a planned pod is narrowed to the planned node and the next options of the plan if this is cheaper.
// If none of these nodes passes all filters, the plugin's PostFilter ends the cycle before other plugins evict pods
// for it. The pod is then permanently excluded from plans, so that its next cycle is an ordinary one.
type batching struct {
	planner    *batch.Planner
	strategies map[string]batch.Strategy // strategies that plan the whole queue, by name
	follow     func()                    // starts to follow pods; called when the first pod is planned
}

func (d Deps) newBatching(ctx context.Context, e *Energy, strategies map[string]batch.Strategy,
	handle fwk.Handle,
) *batching {
	if e.args.Batch.MaxPods == 0 {
		return nil
	}
	b := &batching{strategies: strategies}
	b.planner = batch.New(batch.Config{
		Limits: e.args.Batch, Profile: handle.ProfileName(), Policy: e.policy(sched.Weights{}), View: d.View,
		Read: e.readBatch, Log: d.Log, Strategies: strategies,
		Held: func(pod *v1.Pod) bool { return d.Gate != nil && d.Gate.Holds(pod.UID) },
	})
	pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
	b.follow = sync.OnceFunc(func() {
		if _, err := pods.AddEventHandler(kube.Surviving(d.Log, e.podHandler(b, handle.ProfileName()))); err != nil {
			d.Log.ErrorContext(ctx, "Failed to watch pods, so no pods are planned", "error", err)
		}
	})
	if strategies[e.args.Strategy] != nil {
		b.follow()
	}
	d.Go(ctx, "batch plans of "+handle.ProfileName(), b.planner.Run)
	return b
}

// podHandler returns an event handler that keeps the pods of the planner up to date. These are the pods of the
// profile that are in the queue, or would be if they were not held.
func (e *Energy) podHandler(b *batching, profile string) cache.ResourceEventHandler {
	drop := func(obj any) {
		if pod, ok := kube.EventObject[*v1.Pod](obj); ok {
			b.planner.Drop(pod.UID)
		}
	}
	put := func(obj any) {
		defer e.rescue.from("informer", nil)
		pod := obj.(*v1.Pod)
		if p, ok := e.readBatch(pod); ok && b.plans(p.Where) {
			b.planner.Put(p)
		} else {
			b.planner.Drop(pod.UID)
		}
	}
	return cache.FilteringResourceEventHandler{
		FilterFunc: func(obj any) bool {
			pod, ok := obj.(*v1.Pod)
			return !ok || pod.Spec.NodeName == "" && pod.Spec.SchedulerName == profile &&
				pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 && pod.Spec.SchedulingGroup == nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: put,
			UpdateFunc: func(before, pod any) {
				if before.(*v1.Pod).UID != pod.(*v1.Pod).UID {
					drop(before)
				}
				put(pod)
			},
			DeleteFunc: drop,
		},
	}
}

// readBatch reads a pod for the planner. Pods with requirements that Filter checks are not planned, because plans
// do not consider these.
func (e *Energy) readBatch(pod *v1.Pod) (batch.Pod, bool) {
	r := e.read(pod)
	if r == nil || r.settings.MaxPower != 0 || r.settings.MinEfficiency != 0 {
		return batch.Pod{}, false
	}
	e.fillExpected(r, pod)
	return batch.Pod{Object: pod, View: r.view, Job: r.job, Where: r.settings.Where, Weights: r.settings.Weights}, true
}

const stepKey fwk.StateKey = EnergyName + "/step"

// following is the part of a plan that applies to a cycle.
type following struct {
	batch.Step
	narrowed bool
}

// Clone implements [fwk.StateData]. It does not copy, because the value is only used by its own cycle.
func (f *following) Clone() fwk.StateData { return f }

// leads reports whether the node is one of those in the plan.
func (f *following) leads(node string) bool { return f.Node == node || slices.Contains(f.Next, node) }

// followed returns the part of a plan that applies to the cycle, or nil if there is none.
func followed(state fwk.CycleState) *following { return noted[following](state, stepKey) }

// plans reports whether pods with the given placement strategy are planned jointly.
func (b *batching) plans(where string) bool {
	plans := b != nil && b.strategies[where] != nil
	if plans {
		b.follow()
	}
	return plans
}

// narrowToPlan takes the step of the plan for a pod. It returns the nodes to which the cycle is narrowed, or nil if
// the cycle is not narrowed.
func (e *Energy) narrowToPlan(state fwk.CycleState, r *request, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) *fwk.PreFilterResult {
	if !e.batch.plans(r.settings.Where) {
		return nil
	}
	step, planned, wanted := e.batch.planner.Turn(pod.UID)
	if wanted {
		e.ask(r, nodes)
	}
	// A node that was nominated by preemption takes precedence over the plan.
	if !planned || pod.Status.NominatedNodeName != "" {
		return nil
	}
	f := &following{Step: step}
	state.Write(stepKey, f)
	if !e.retries.allow(len(nodes)) || !batch.Plain(pod) {
		return nil
	}
	left := e.possible(pod, step)
	if len(left) == 0 {
		return nil
	}
	f.narrowed = true
	return &fwk.PreFilterResult{NodeNames: left}
}

// gathers reports whether the pod must be kept out of the queue, because it is planned together with pods that
// arrive at the same time. Only pods of Jobs with a strategy that plans the whole queue are gathered (with the scope
// "all", also unmarked ones), and only if this does not delay them beyond the latest start of their Job.
// gate may be nil.
func (e *Energy) gathers(pod *v1.Pod, gate Gate) bool {
	if e == nil || e.args.Scope != All && !e.view().Concerns(pod) {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "Job" || len(pod.Spec.SchedulingGates) > 0 || pod.Spec.SchedulingGroup != nil {
		return false
	}
	if kept, known := e.batch.planner.Kept(pod.UID); known {
		return kept
	}
	p, ok := e.readBatch(pod)
	if !ok || !e.batch.plans(p.Where) {
		return false
	}
	var latest time.Time
	known := false
	if gate != nil {
		latest, known = gate.LatestStart(owner.UID)
	}
	if known && latest.Before(e.clock().Add(batch.MaxKept)) || !known && p.Job.AllowedDelay > 0 {
		return false // also if the Job may have a deadline that is not known
	}
	return e.batch.planner.Gather(pod)
}

// ask passes a copy of the nodes to the planner. The planner waits for this call even if the copying panics.
func (e *Energy) ask(r *request, nodes []fwk.NodeInfo) {
	e.batch.planner.Ask(e.question(r.view, func() []fwk.NodeInfo { return nodes }))
}

// question returns a copy of the nodes, including the pods that the scheduler has assumed on them. It returns nil if
// the copying panics.
func (e *Energy) question(view *kube.View, list func() []fwk.NodeInfo) (q *batch.Question) {
	defer e.rescue.from("planning", nil)
	nodes := list()
	e.mu.Lock()
	defer e.mu.Unlock()
	copied := batch.Question{
		View: view, At: e.clock(), Objects: make([]*v1.Node, len(nodes)), Slots: make([]int, len(nodes)),
	}
	for i, n := range nodes {
		copied.Objects[i] = n.Node()
		if _, hot := e.live.TooHot(n.Node().Name); !hot {
			copied.Slots[i] = n.GetAllocatable().GetAllowedPodNumber() - len(n.GetPods())
		}
	}
	e.book.open(view, nodes)
	e.copyNodes(&e.scratch.all, nodes, copied.At)
	copied.Nodes = slices.Clone(e.scratch.all.nodes)
	return &copied
}

// possible returns the nodes of a step that still exist, that admit the pod and that have capacity for it. Plans
// only consider CPU, memory and GPUs, so all resource requests of the pod are checked here.
func (e *Energy) possible(pod *v1.Pod, step batch.Step) sets.Set[string] {
	admission := kube.AdmissionOf(pod)
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	left := make(sets.Set[string], 1+len(step.Next))
	for _, name := range append([]string{step.Node}, step.Next...) {
		n, err := e.nodes(name)
		if err == nil && n.Node() != nil && admission.Admits(n.Node()) && hasRoom(n, requests) {
			left.Insert(name)
		}
	}
	return left
}

// hasRoom predicts the result of the filter NodeResourcesFit.
func hasRoom(n fwk.NodeInfo, requests v1.ResourceList) bool {
	all, taken := n.GetAllocatable(), n.GetRequested()
	if len(n.GetPods()) >= all.GetAllowedPodNumber() {
		return false
	}
	for name, q := range requests {
		var want, free int64
		switch name {
		case v1.ResourceCPU:
			want, free = q.MilliValue(), all.GetMilliCPU()-taken.GetMilliCPU()
		case v1.ResourceMemory:
			want, free = q.Value(), all.GetMemory()-taken.GetMemory()
		case v1.ResourceEphemeralStorage:
			want, free = q.Value(), all.GetEphemeralStorage()-taken.GetEphemeralStorage()
		default:
			want, free = q.Value(), all.GetScalarResources()[name]-taken.GetScalarResources()[name]
		}
		if want > free && want > 0 {
			return false
		}
	}
	return true
}

// rankByPlan ranks the nodes by a plan, with the planned node first and then the next options in order. It reports
// whether any of these is among the nodes. If not, the pod is scored as if it had not been planned.
func (e *Energy) rankByPlan(state fwk.CycleState, r *request, nodes []fwk.NodeInfo) (led bool) {
	f := followed(state)
	if f == nil || !e.batch.plans(r.settings.Where) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ranking.begin(len(nodes))
	for i, n := range nodes {
		name := n.Node().Name
		points := f.score(name)
		e.ranking.single(i, name)
		e.ranking.points = append(e.ranking.points, points)
		led = led || points > 0
	}
	if led {
		e.ranking.of = r
	}
	return led
}

// score returns the score of a node, which is 0 if the node is not in the plan.
func (f *following) score(node string) int64 {
	if node == f.Node {
		return bestScore
	}
	if i := slices.Index(f.Next, node); i >= 0 {
		return bestScore - 1 - int64(i) // greater than 0, see maxOptions
	}
	return 0
}

// countPlacement updates the metrics after the placement of a planned pod.
func (b *batching) countPlacement(state fwk.CycleState, node string) {
	if b == nil {
		return
	}
	switch f := followed(state); {
	case f == nil:
	case f.Node == node:
		b.planner.Count(batch.Followed)
	case slices.Contains(f.Next, node):
		b.planner.Count(batch.Next)
	default:
		b.planner.Count(batch.Elsewhere)
	}
}

// requeue informs the planner that a pod waits again.
func (b *batching) requeue(pod *v1.Pod) {
	if b != nil {
		b.planner.Requeue(pod.UID)
	}
}

// passOn is the status that lets the following plugins attempt preemption.
var passOn = fwk.NewStatus(fwk.Unschedulable)

// PostFilter ends a cycle that was narrowed and found no node, and the cycle of a pod while a node is being woken
// up. All other pods are left to the following plugins.
func (e *Energy) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	_ fwk.NodeToStatusReader,
) (_ *fwk.PostFilterResult, status *fwk.Status) {
	status = passOn
	defer e.rescue.from("PostFilter", nil)
	// use the request of this cycle, because the cycle may have been narrowed under an earlier view
	r := noted[request](state, requestKey)
	if r == nil {
		return nil, e.awaitBoot(ctx, state, pod)
	}
	if f := followed(state); f != nil && f.narrowed {
		e.batch.planner.Exclude(pod.UID)
		e.batch.planner.Count(batch.Retried)
		status = e.retries.retry(pod, "no planned node passed the filters")
	} else if r.shortlisted {
		shortlisted.WithLabelValues(outcomeRetried).Inc()
		e.shortlistFailed()
		status = e.retries.retry(pod, "none of the cheapest nodes passed the filters")
	} else {
		status = e.awaitBoot(ctx, state, pod)
	}
	e.batch.requeue(pod)
	return nil, status
}

// awaitBoot ends the cycle of a pod while a node is being woken up for it, so that no pods are evicted for it.
func (e *Energy) awaitBoot(ctx context.Context, state fwk.CycleState, pod *v1.Pod) *fwk.Status {
	if node := e.sleepers.find(ctx, state, pod); node != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waiting for the sleeping node "+node+" to wake up")
	}
	return passOn
}
