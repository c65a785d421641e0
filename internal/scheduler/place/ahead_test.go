package place

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// large returns a pod that the larger machine of these tests has room for once.
func large() *v1.Pod {
	pod := newPod()
	pod.UID, pod.CreationTimestamp = "large", metav1.NewTime(noon.Add(time.Hour))
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("6")
	return pod
}

// TestLargePodsFindRoom verifies that a pod leaves the only room for a large pod free, although it would use less
// energy there, that the decision can be reproduced from its record, and that its scores are not reused.
func TestLargePodsFindRoom(t *testing.T) {
	roomy, small := newMachine("roomy", "coal", "frugal"), newMachine("small", "coal", "hungry")
	small.allocatable.cpu, small.allocatable.pods, roomy.allocatable.pods = 5000, 110, 110
	nodes := []fwk.NodeInfo{roomy, small}
	pod := newPod(v1alpha1.AnnotationStrategy, "energy", v1alpha1.AnnotationExpectedDuration, "30m")
	got := recorded(t, func(r *record.Recorder) {
		d := deps(knowledge(t, noon))
		d.Recorder = r
		e := newEnergyPlugin(t, d, "")
		e.arrivals = &arrivals{}
		if got, want := play(t, e, pod, nodes), "roomy=100 small=0"; got != want {
			t.Errorf("without arrivals: scores %s, want %s", got, want)
		}
		arrived := e.arrivals.handler(d.Clock)
		for range 2 {
			arrived.OnAdd(large(), false)
		}
		if got, want := play(t, e, pod, nodes), "roomy=0 small=100"; got != want {
			t.Errorf("after large pods have arrived: scores %s, want %s", got, want)
		}
		// Pods are signed before their cycles, when it is unknown whether room will be short.
		if _, status := e.SignPod(t.Context(), pod); status.IsSuccess() {
			t.Error("scores that depend on the room of other nodes are signed")
		}
		reserve(t, e, pod, nodes, "small")
	})
	if len(got) != 1 {
		t.Fatalf("%d records, want 1", len(got))
	}
	s := unpacked(t, got[0].Snapshot)
	if len(s.Ahead) != 1 || s.Ahead[0].PerHour < 1.9 {
		t.Errorf("expected jobs in the record: %+v", s.Ahead)
	}
	if plan, err := replay(s, got[0].Strategy); err != nil || plan[0].Node != "small" {
		t.Errorf("the replayed decision is %+v, error %v", plan, err)
	}
}

// TestEndsOnNodes verifies that the expected ends of the pods on a node are read again when the node changes, and that
// the capacity of a Job's pod that ends soon counts as room.
func TestEndsOnNodes(t *testing.T) {
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	m, now := newMachine("m", "coal", "frugal"), noon.Add(time.Hour)
	runs := func(length string, began time.Time) fwk.PodInfo {
		pod := newPod(v1alpha1.AnnotationExpectedDuration, length)
		pod.Status.StartTime = new(metav1.NewTime(began))
		return runningPod{pod: pod}
	}
	e.book.view = e.view()
	for _, tc := range []struct {
		pods []fwk.PodInfo
		want []time.Duration
	}{
		{m.pods, nil}, // not expected to end
		{[]fwk.PodInfo{runs("90m", noon), runs("10m", now)}, []time.Duration{10 * time.Minute, 30 * time.Minute}},
		{[]fwk.PodInfo{runs("20m", noon)}, []time.Duration{time.Hour - 4*time.Minute}}, // late
		{[]fwk.PodInfo{runs("59m", noon)}, []time.Duration{-time.Minute}},              // will end soon
	} {
		m.pods, m.generation = tc.pods, generations.Add(1)
		for range 2 { // read and cached
			got := e.book.endsOn(m, now)
			if len(got) != len(tc.want) {
				t.Fatalf("ends %v, want %v", got, tc.want)
			}
			for i := range got {
				if in := got[i].At.Sub(now); in != tc.want[i] || got[i].Request.MilliCPU != 1000 {
					t.Errorf("end %d in %v with %v, want %v", i, in, got[i].Request, tc.want[i])
				}
			}
		}
	}
}

// TestWaitingPods verifies which pods count as waiting for room.
func TestWaitingPods(t *testing.T) {
	now := noon.Add(time.Hour)
	unschedulable := func(message string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Status.Conditions = []v1.PodCondition{{
				Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: message,
			}}
		}
	}
	type events = func(h cache.ResourceEventHandler, pod *v1.Pod, change func(func(*v1.Pod)) *v1.Pod)
	const short = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu, 2 Insufficient memory."
	for name, tc := range map[string]struct {
		events events
		want   int
	}{
		"new": {events: func(cache.ResourceEventHandler, *v1.Pod, func(func(*v1.Pod)) *v1.Pod) {}},
		"lacks CPU": {func(h cache.ResourceEventHandler, pod *v1.Pod, change func(func(*v1.Pod)) *v1.Pod) {
			h.OnUpdate(pod, change(unschedulable(short)))
			h.OnUpdate(pod, change(unschedulable(short)))
		}, 1},
		"lacks a GPU": {func(h cache.ResourceEventHandler, pod *v1.Pod, change func(func(*v1.Pod)) *v1.Pod) {
			h.OnUpdate(pod, change(unschedulable("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")))
		}, 1},
		"lacks a device": {events: func(h cache.ResourceEventHandler, pod *v1.Pod, change func(func(*v1.Pod)) *v1.Pod) {
			h.OnUpdate(pod, change(unschedulable("0/3 nodes are available: 3 Insufficient example.com/fpga.")))
		}},
		"lacks something else now": {events: func(h cache.ResourceEventHandler, pod *v1.Pod, change func(func(*v1.Pod)) *v1.Pod) {
			h.OnUpdate(pod, change(unschedulable(short)))
			h.OnUpdate(pod, change(unschedulable("0/3 nodes are available: 3 node(s) had volume node affinity conflict.")))
		}},
		"bound": {events: func(h cache.ResourceEventHandler, pod *v1.Pod, change func(func(*v1.Pod)) *v1.Pod) {
			h.OnUpdate(pod, change(unschedulable(short)))
			h.OnUpdate(pod, change(func(pod *v1.Pod) { pod.Spec.NodeName = "n" }))
		}},
		"deleted": {events: func(h cache.ResourceEventHandler, pod *v1.Pod, change func(func(*v1.Pod)) *v1.Pod) {
			h.OnUpdate(pod, change(unschedulable(short)))
			h.OnDelete(cache.DeletedFinalStateUnknown{Obj: pod})
		}},
		"replaced": {events: func(h cache.ResourceEventHandler, pod *v1.Pod, change func(func(*v1.Pod)) *v1.Pod) {
			waits := change(unschedulable(short))
			h.OnUpdate(pod, waits)
			h.OnUpdate(waits, change(func(pod *v1.Pod) { pod.UID = "another" }))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &arrivals{}
			h, pod := a.handler(func() time.Time { return now }), large()
			h.OnAdd(pod, false)
			tc.events(h, pod, func(do func(*v1.Pod)) *v1.Pod {
				changed := pod.DeepCopy()
				do(changed)
				return changed
			})
			room := sched.Resources{MilliCPU: 6000, Memory: 1 << 30}
			ahead := a.of.Ahead(now, &sched.Job{}, slices.Values([]*sched.Node{{Capacity: room, Free: room}}),
				func(*sched.Node) []sched.End { return nil })
			if len(ahead) != 1 || ahead[0].Waiting != tc.want {
				t.Errorf("expected pods %+v, want %d waiting", ahead, tc.want)
			}
		})
	}
}

// TestReservedPodsDoNotWait verifies that a pod no longer counts as waiting once it has a node, and does again if its
// binding fails.
func TestReservedPodsDoNotWait(t *testing.T) {
	a, pod := &arrivals{}, large()
	pod.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "1 Insufficient cpu.",
	}}
	now := noon.Add(time.Hour)
	a.handler(func() time.Time { return now }).OnAdd(pod, false)
	room := sched.Resources{MilliCPU: 6000, Memory: 1 << 30}
	nodes := []*sched.Node{{Capacity: room, Free: room}}
	for _, tc := range []struct {
		do   func()
		want int
	}{
		{func() {}, 1},
		{func() { a.reserved(pod, now, true) }, 0},
		{func() { a.reserved(pod, now, false) }, 1},
		{func() { now = now.Add(time.Minute) }, 1},
		{func() { now = now.Add(5 * time.Minute) }, 0}, // there has been room, so it waits for something else
		{func() { nodes[0].Free = sched.Resources{} }, 1},
	} {
		tc.do()
		ahead := a.of.Ahead(now, &sched.Job{Request: room}, slices.Values(nodes), func(*sched.Node) []sched.End {
			return []sched.End{{At: now.Add(time.Minute), Request: room}}
		})
		if len(ahead) != 1 || ahead[0].Waiting != tc.want {
			t.Errorf("expected pods %+v, want %d waiting", ahead, tc.want)
		}
	}
}

// BenchmarkLookAhead measures an outlook on 5,000 full nodes with 30 pods each, for eight kinds of pods without room,
// after a cycle in which the expected ends were read.
func BenchmarkLookAhead(b *testing.B) {
	e := newEnergyPlugin(b, deps(knowledge(b, noon)), "")
	e.arrivals = &arrivals{}
	nodes := farm(5000)
	for _, n := range nodes {
		m := n.(*machine)
		m.requested, m.allocatable.pods, m.pods = m.allocatable, 110, nil
		for i := range 30 {
			pod := newPod(v1alpha1.AnnotationExpectedDuration, "90m")
			pod.Status.StartTime = new(metav1.NewTime(noon.Add(time.Duration(i) * time.Minute)))
			m.pods = append(m.pods, runningPod{pod: pod})
		}
	}
	arrived := e.arrivals.handler(e.clock)
	for i := range 8 {
		pod := large()
		pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelPowerProfile: []string{"frugal", "hungry"}[i%2]}
		pod.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = *resource.NewQuantity(2<<(30-i), resource.BinarySI)
		arrived.OnAdd(pod, false)
	}
	pod := newPod(v1alpha1.AnnotationStrategy, "energy")
	r := e.read(pod)
	r.cluster = nodes
	e.lookAhead(r, pod)
	for b.Loop() {
		if ahead := e.lookAhead(r, pod); len(ahead) != 8 {
			b.Fatalf("%d kinds of expected pods, want 8", len(ahead))
		}
	}
}
