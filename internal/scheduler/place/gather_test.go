package place

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/scheduler/batch"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// newGathering returns a Hold plugin that gathers the pods of b, and the names of the pods that it has activated.
func newGathering(b *batched, gate Gate) (h *Hold, activated *[]string) {
	h = &Hold{
		gate: gate, clock: b.clock, profile: "default-scheduler",
		common: &shared{
			energies: map[string]*Energy{"default-scheduler": b.Energy}, turns: turns{view: b.view},
		},
	}
	h.GatherWith(func() []fwk.NodeInfo { return b.nodes })
	activated = new([]string)
	h.ActivateBy(func(_ klog.Logger, pods map[string]*v1.Pod) {
		*activated = append(*activated, slices.Sorted(maps.Keys(pods))...)
	})
	return h, activated
}

// jobPod returns a pod of a Job that is planned.
func jobPod(name, job string) *v1.Pod {
	pod := planPod(name)
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: types.UID(job), Controller: new(true)}}
	return pod
}

// TestPodsOfJobsAreGathered verifies that pods of two Jobs are planned together before any of them is scheduled, in
// a cluster where plans determine scores only.
func TestPodsOfJobsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatched(t, 6)
		h, activated := newGathering(b, nil)
		pods := []*v1.Pod{jobPod("x", "one"), jobPod("y", "one"), jobPod("z", "two")}
		for _, pod := range pods {
			p, _ := b.readBatch(pod)
			b.batch.planner.Put(p)
			if status := h.PreEnqueue(t.Context(), pod); status.Code() != fwk.UnschedulableAndUnresolvable {
				t.Fatalf("%s: %v", pod.Name, status)
			}
		}
		bubble.Advance(batch.MaxKept)
		if want := []string{"lab/x", "lab/y", "lab/z"}; !slices.Equal(*activated, want) {
			t.Fatalf("activated %v, want %v", *activated, want)
		}
		for _, pod := range pods {
			if status := h.PreEnqueue(t.Context(), pod); !status.IsSuccess() {
				t.Errorf("%s is kept out of the queue again: %v", pod.Name, status)
			}
			if _, state := b.cycle(pod); followed(state) == nil || followed(state).Of != len(pods) {
				t.Errorf("%s follows no plan of all pods", pod.Name)
			}
		}
	})
}

func TestOnlyMarkedPodsOfJobsAreGathered(t *testing.T) {
	change := func(f func(*v1.Pod)) *v1.Pod {
		pod := jobPod("p", "j")
		f(pod)
		return pod
	}
	now := noon.Add(time.Hour) // see deps
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		latest time.Time // of the Job if it was held
		want   bool
	}{
		"a pod of a Job":     {pod: jobPod("p", "j"), want: true},
		"a bare pod":         {pod: planPod("p")},
		"another controller": {pod: change(func(p *v1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" })},
		"an unmarked pod":    {pod: change(func(p *v1.Pod) { p.Annotations = nil })},
		"a strategy per pod": {pod: change(func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationStrategy] = "energy" })},
		"a scheduling gate": {pod: change(func(p *v1.Pod) {
			p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}}
		})},
		"a scheduling group":  {pod: change(func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{} })},
		"before the deadline": {pod: jobPod("p", "j"), latest: now.Add(batch.MaxKept), want: true},
		"at the deadline":     {pod: jobPod("p", "j"), latest: now.Add(batch.MaxKept - 1)},
		"an unknown deadline": {pod: change(func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationAllowedDelay] = "6h" })},
	} {
		t.Run(name, func(t *testing.T) {
			gate := &door{}
			if !tc.latest.IsZero() {
				gate.latest = map[types.UID]time.Time{"j": tc.latest}
			}
			h, _ := newGathering(newBatched(t, 6), gate)
			if got := !h.PreEnqueue(t.Context(), tc.pod).IsSuccess(); got != tc.want {
				t.Errorf("gathered = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestNoPlansGatherNothing verifies that profiles without plans gather no pods.
func TestNoPlansGatherNothing(t *testing.T) {
	h, _ := newGathering(&batched{Energy: newEnergyPlugin(t, deps(knowledge(t, noon)), "")}, nil)
	if status := h.PreEnqueue(t.Context(), jobPod("p", "j")); !status.IsSuccess() {
		t.Errorf("got %v", status)
	}
}
