package place

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/scheduler/batch"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// batched is a plugin with a planner that is run by the test. The test may change the nodes.
type batched struct {
	*Energy
	nodes     []fwk.NodeInfo
	activated []string
}

func newBatched(t *testing.T, nodes int) *batched {
	t.Helper()
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	b := &batched{Energy: e, nodes: farm(nodes)}
	for i := range b.nodes {
		m := b.nodes[i].(*machine)
		m.allocatable.pods, m.requested = 110, amounts{}
	}
	e.nodes = func(name string) (fwk.NodeInfo, error) {
		if i := slices.IndexFunc(b.nodes, func(n fwk.NodeInfo) bool { return n.Node().Name == name }); i >= 0 {
			return b.nodes[i], nil
		}
		return nil, fwk.ErrNotFound
	}
	e.args.Batch.MinPods = 2
	limits := e.args.Batch
	e.retries = &retries{
		again: &atomic.Pointer[v1.Pod]{}, failed: lru.New(memorable), first: func() bool { return true },
		activate: func(pod *v1.Pod) { b.activated = append(b.activated, pod.Name) },
	}
	rounds, err := strategy.New("ecsched-dp")
	if err != nil {
		t.Fatal(err)
	}
	e.batch = &batching{
		follow:     func() {},
		strategies: map[string]batch.Strategy{"ecsched-dp": rounds},
		planner: batch.New(batch.Config{
			Limits: limits, Profile: t.Name(), View: e.view, Read: e.readBatch, Log: slog.New(slog.DiscardHandler),
			Strategies: map[string]batch.Strategy{"ecsched-dp": rounds}, Held: func(*v1.Pod) bool { return false },
		}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = e.batch.planner.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return b
}

func planPod(name string) *v1.Pod {
	pod := newPod(v1alpha1.AnnotationStrategy, "ecsched-dp")
	pod.Name, pod.UID = name, types.UID(name)
	return pod
}

// waits adds pods to the planner, and lets it plan them in the cycle of another pod.
func (b *batched) waits(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		p, ok := b.readBatch(pod)
		if !ok {
			t.Fatalf("%s is not read", pod.Name)
		}
		b.batch.planner.Put(p)
	}
	if result, _ := b.cycle(planPod("first")); result != nil {
		t.Fatal("the cycle that requests a plan is narrowed")
	}
	synctest.Wait()
}

func (b *batched) cycle(pod *v1.Pod) (*fwk.PreFilterResult, *cycle) {
	state := newCycle()
	result, _ := b.PreFilter(context.Background(), state, pod, b.nodes)
	return result, state
}

func TestCyclesAreNarrowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatched(t, 200)
		x, y, z, busy := planPod("x"), planPod("y"), planPod("z"), planPod("busy")
		busy.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
		b.waits(t, x, y, z, busy)
		result, state := b.cycle(x)
		f := followed(state)
		if f == nil || result == nil || !result.NodeNames.Has(f.Node) || len(result.NodeNames) > 1+3 {
			t.Fatalf("narrowed to %+v with %+v", result, f)
		}
		// The order of the plan applies to the remaining nodes.
		var left []fwk.NodeInfo
		for _, n := range b.nodes {
			if result.NodeNames.Has(n.Node().Name) {
				left = append(left, n)
			}
		}
		if status := b.PreScore(t.Context(), state, x, left); !status.IsSuccess() {
			t.Fatal(status)
		}
		scores := make(fwk.NodeScoreList, len(left))
		for i, n := range left {
			scores[i].Name = n.Node().Name
		}
		b.NormalizeScore(t.Context(), state, x, scores)
		for _, s := range scores {
			if (s.Score == bestScore) != (s.Name == f.Node) || s.Score <= 0 {
				t.Errorf("the score of %s is %d, but the planned node is %s", s.Name, s.Score, f.Node)
			}
		}
		// Only capacity is checked before a cycle is narrowed, so cycles of pods with other requirements are not
		// narrowed.
		if result, state := b.cycle(busy); result != nil || followed(state) == nil {
			t.Error("the cycle of a pod with a host port is narrowed")
		}
		// None of the planned nodes exists any more.
		_, taken := b.cycle(y)
		b.batch.planner.Requeue(y.UID)
		if followed(taken) == nil {
			t.Fatal("no step")
		}
		for _, n := range b.nodes {
			m := n.(*machine)
			m.requested.cpu, m.generation = 8000, generations.Add(1)
		}
		if result, state := b.cycle(z); result != nil || followed(state) == nil {
			t.Errorf("narrowed to %v although all nodes are full", result)
		}
		if result, _ := b.cycle(y); result != nil {
			t.Error("narrowed twice by one plan")
		}
	})
}

// TestAfterANarrowedCycle verifies that after a failed narrowed cycle, no other plugin attempts preemption, the pod
// is retried immediately, and no plan narrows its cycle again.
func TestAfterANarrowedCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatched(t, 200)
		x, y := planPod("x"), planPod("y")
		b.waits(t, x, y)
		_, state := b.cycle(x)
		if _, status := b.PostFilter(t.Context(), state, x, nil); status.Code() != fwk.UnschedulableAndUnresolvable {
			t.Errorf("after a narrowed cycle: %v", status)
		}
		if !slices.Equal(b.activated, []string{"x"}) {
			t.Errorf("activated %v while the pod is in flight", b.activated)
		}
		b.cycle(newPod()) // a pod without annotations
		if !slices.Equal(b.activated, []string{"x", "x"}) {
			t.Errorf("activated %v after the pod is back in the queue", b.activated)
		}
		b.cycle(y)
		if len(b.activated) != 2 {
			t.Errorf("activated %v", b.activated)
		}
		result, state := b.cycle(x)
		if result != nil || followed(state) != nil {
			t.Error("the second cycle follows a plan")
		}
		if _, status := b.PostFilter(t.Context(), state, x, nil); status.Code() != fwk.Unschedulable {
			t.Errorf("after an ordinary cycle: %v", status)
		}
		bubble.Advance(time.Minute)
		b.waits(t, planPod("p"), planPod("q"), planPod("r"))
		if result, _ := b.cycle(x); result != nil {
			t.Error("the cycle is narrowed by a later plan")
		}
	})
}

func TestPostFilterPassesOn(t *testing.T) {
	for name, e := range map[string]*Energy{
		"without plans": newEnergyPlugin(t, deps(knowledge(t, noon)), ""), "with plans": newBatched(t, 3).Energy,
	} {
		for _, pod := range []*v1.Pod{newPod(), newPod(v1alpha1.AnnotationStrategy, "energy"), planPod("x")} {
			state := newCycle()
			e.PreFilter(t.Context(), state, pod, nil)
			if result, status := e.PostFilter(t.Context(), state, pod, nil); result != nil ||
				status.Code() != fwk.Unschedulable || status.Message() != "" {
				t.Errorf("%s: %v, %v", name, result, status)
			}
		}
	}
}

func TestPlannedPodsAreNotSigned(t *testing.T) {
	b := newBatched(t, 3)
	if _, status := b.SignPod(t.Context(), planPod("x")); status.Code() != fwk.Unschedulable {
		t.Errorf("a pod that may be planned has a signature: %v", status)
	}
	if fragments, status := b.SignPod(t.Context(),
		newPod(v1alpha1.AnnotationStrategy, "carbon")); !status.IsSuccess() ||
		len(fragments) != 1 {
		t.Errorf("another pod has no signature: %v", status)
	}
}

// TestNamedLimitsAreNotPlanned verifies that pods with requirements that Filter checks are not planned.
func TestNamedLimitsAreNotPlanned(t *testing.T) {
	b := newBatched(t, 3)
	pod := planPod("x")
	pod.Annotations[v1alpha1.AnnotationMaxPower] = "100"
	if _, ok := b.readBatch(pod); ok {
		t.Error("a pod with a max power is planned")
	}
	if _, ok := b.readBatch(newPod()); ok {
		t.Error("an unmarked pod is planned")
	}
}

func TestRoom(t *testing.T) {
	m := newMachine("n", "coal", "frugal")
	m.allocatable.pods = 2
	m.allocatable.scalars = map[v1.ResourceName]int64{"example.com/fpga": 1}
	for name, tc := range map[string]struct {
		requests v1.ResourceList
		pods     int
		want     bool
	}{
		"room":         {v1.ResourceList{v1.ResourceCPU: amount("6"), v1.ResourceMemory: amount("28Gi")}, 1, true},
		"CPU":          {v1.ResourceList{v1.ResourceCPU: amount("6001m")}, 1, false},
		"memory":       {v1.ResourceList{v1.ResourceMemory: amount("29Gi")}, 1, false},
		"storage":      {v1.ResourceList{v1.ResourceEphemeralStorage: amount("1")}, 1, false},
		"device":       {v1.ResourceList{"example.com/fpga": amount("1")}, 1, true},
		"devices":      {v1.ResourceList{"example.com/fpga": amount("2")}, 1, false},
		"other device": {v1.ResourceList{"example.com/tpu": amount("1")}, 1, false},
		"none wanted":  {v1.ResourceList{"example.com/tpu": amount("0")}, 1, true},
		"pods":         {nil, 2, false},
	} {
		m.pods = make([]fwk.PodInfo, tc.pods)
		if got := hasRoom(m, tc.requests); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestPlansLeaveHotNodesOut verifies that plans do not contain nodes that are too hot.
func TestPlansLeaveHotNodesOut(t *testing.T) {
	m := newMeters(t)
	plan := func() (f *following) {
		synctest.Test(t, func(t *testing.T) {
			b := newBatched(t, 200)
			b.live = m.feed
			x, y := planPod("x"), planPod("y")
			b.waits(t, x, y)
			_, state := b.cycle(x)
			f = followed(state)
		})
		return f
	}
	before := plan()
	hot := sched.Heat{Celsius: 90, Limit: 80, AsOf: m.now, Hot: true}
	var all []api.NodePower
	for _, name := range append(before.Next, before.Node) {
		all = append(all, api.NodePower{Node: name, Temperature: hot})
	}
	m.notify(t, all...)
	after := plan()
	for _, n := range all {
		if after.leads(n.Node) {
			t.Errorf("the hot node %s is part of the plan %+v", n.Node, after.Step)
		}
	}
	if after.Node == "" {
		t.Error("the other nodes are not part of the plan")
	}
}
