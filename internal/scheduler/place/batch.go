package place

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/batch"
)

// batching makes the cycles of one profile follow plans over the pods that wait. A nil batching does nothing.
//
// A cycle of a planned pod is narrowed to the planned node and the plan's next options where that saves something. If
// none of them passes all filters, our PostFilter ends the cycle before other plugins evict pods for it, and the
// pod's next cycle is an ordinary one: it is taken out of all plans for good.
type batching struct {
	planner    *batch.Planner
	strategies map[string]batch.Strategy // that plan, by name
	follow     func()                    // the pods, from now on, if not yet: where nothing is planned none matters
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
			d.Log.ErrorContext(ctx, "pods cannot be followed: nothing is planned", "error", err)
		}
	})
	if strategies[e.args.Strategy] != nil {
		b.follow()
	}
	d.Go(ctx, "batch plans of "+handle.ProfileName(), b.planner.Run)
	return b
}

// podHandler keeps the planner's pods: those of the profile that are in the queue, or would be if they were not held.
func (e *Energy) podHandler(b *batching, profile string) cache.ResourceEventHandler {
	drop := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if pod, ok := obj.(*v1.Pod); ok {
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
				pod.DeletionTimestamp == nil &&
				len(pod.Spec.SchedulingGates) == 0 && pod.Spec.SchedulingGroup == nil
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

// readBatch reads a pod for the planner. What a pod asks of its node by name is a matter of Filter, which plans know
// nothing of: such pods are not planned.
func (e *Energy) readBatch(pod *v1.Pod) (batch.Pod, bool) {
	r := e.read(pod)
	if r == nil || r.settings.MaxPower != 0 || r.settings.MinEfficiency != 0 {
		return batch.Pod{}, false
	}
	e.fillExpected(r, pod)
	return batch.Pod{Object: pod, View: r.view, Job: r.job, Where: r.settings.Where, Weights: r.settings.Weights}, true
}

const stepKey fwk.StateKey = EnergyName + "/step"

// following is what a cycle has of a plan.
type following struct {
	batch.Step
	narrowed bool
}

// Clone implements [fwk.StateData]. It is looked at by the cycle alone that made it.
func (f *following) Clone() fwk.StateData { return f }

// leads reports whether the node is one of the plan's.
func (f *following) leads(node string) bool { return f.Node == node || slices.Contains(f.Next, node) }

// followed returns what the cycle has of a plan, nil if there is nothing.
func followed(state fwk.CycleState) *following { return noted[following](state, stepKey) }

// plans reports whether pods of a where are planned together.
func (b *batching) plans(where string) bool {
	plans := b != nil && b.strategies[where] != nil
	if plans {
		b.follow()
	}
	return plans
}

// narrowToPlan takes the turn of a pod. It returns the nodes that the cycle is narrowed to, nil if it is not.
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
	// Where preemption has made room for the pod, that is where it goes.
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

// ask hands the planner a copy of the nodes, with the pods that the scheduler has assumed onto them.
func (e *Energy) ask(r *request, nodes []fwk.NodeInfo) {
	var q *batch.Question
	defer func() { e.batch.planner.Ask(q) }() // it waits for an answer, even if something panics here
	e.mu.Lock()
	defer e.mu.Unlock()
	copied := batch.Question{
		View: r.view, At: e.clock(), Objects: make([]*v1.Node, len(nodes)), Slots: make([]int, len(nodes)),
	}
	for i, n := range nodes {
		copied.Objects[i] = n.Node()
		if _, hot := e.live.TooHot(n.Node().Name); !hot {
			copied.Slots[i] = n.GetAllocatable().GetAllowedPodNumber() - len(n.GetPods())
		}
	}
	e.book.open(r.view, nodes)
	e.copyNodes(&e.scratch.all, nodes, copied.At)
	copied.Nodes = slices.Clone(e.scratch.all.nodes)
	q = &copied
}

// possible returns those of a step's nodes that are still there, that the pod may run on, and that have room for it.
// The core knows only of CPU, memory and GPUs, so all that the pod asks for is looked at here.
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

// hasRoom says what NodeResourcesFit will say.
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

// rankByPlan ranks nodes by a plan: the planned node best, then the next options in their order. It reports whether any
// of them is among the nodes; if not, the pod is scored as if there were no plan.
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

// score is 0 for nodes that the plan does not name.
func (f *following) score(node string) int64 {
	if node == f.Node {
		return bestScore
	}
	if i := slices.Index(f.Next, node); i >= 0 {
		return bestScore - 1 - int64(i) // more than 0: see maxOptions
	}
	return 0
}

// countPlacement counts where a planned pod went.
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

// requeue notes that a pod waits again.
func (b *batching) requeue(pod *v1.Pod) {
	if b != nil {
		b.planner.Requeue(pod.UID)
	}
}

// passOn lets the plugins after ours try to make room.
var passOn = fwk.NewStatus(fwk.Unschedulable)

// PostFilter ends a cycle that was narrowed in vain, by a plan or to the nodes of least cost, and one of a pod that a
// machine is woken for. All other pods are left to the plugins that follow.
func (e *Energy) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	_ fwk.NodeToStatusReader,
) (_ *fwk.PostFilterResult, status *fwk.Status) {
	status = passOn
	defer e.rescue.from("PostFilter", nil)
	// whatever the view says of the pod by now: its cycle was narrowed under an earlier one
	r := noted[request](state, requestKey)
	if r == nil {
		return nil, e.awaitBoot(ctx, state, pod)
	}
	if f := followed(state); f != nil && f.narrowed {
		e.batch.planner.Exclude(pod.UID)
		e.batch.planner.Count(batch.Retried)
		status = e.retries.retry(pod, "no planned node is left")
	} else if r.shortlisted {
		shortlisted.WithLabelValues(outcomeRetried).Inc()
		e.shortlistFailed()
		status = e.retries.retry(pod, "none of the nodes of least cost is left")
	} else {
		status = e.awaitBoot(ctx, state, pod)
	}
	e.batch.requeue(pod)
	return nil, status
}

// awaitBoot ends the cycle of a pod for which a machine is woken: no other pod is evicted for it.
func (e *Energy) awaitBoot(ctx context.Context, state fwk.CycleState, pod *v1.Pod) *fwk.Status {
	if node := e.sleepers.find(ctx, state, pod); node != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node "+node+" sleeps and would take it")
	}
	return passOn
}
