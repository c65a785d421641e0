package hold

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
)

func leaseOf(holder string, seconds int32, now metav1.MicroTime) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: kube.HoldLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now,
		},
	}
}

// clockAhead returns a clock that is ahead of the local clock by the given duration.
func clockAhead(by time.Duration) *kube.ServerClock {
	return kube.NewServerClock(func() time.Time { return time.Now().Add(by) }, nil)
}

func gateFor(most int64) *gate {
	view, err := (&kube.Contents{Defaults: policy.Defaults{MaxDelay: time.Hour}}).View()
	if err != nil {
		panic(err)
	}
	return &gate{clock: clockAhead(0), view: func() *kube.View { return view }, max: most}
}

func podOf(age time.Duration, annotations map[string]string, change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "p", UID: types.UID("p"), Annotations: annotations,
		CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
	}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func TestGateHoldsOnlyWhatMayWait(t *testing.T) {
	yes := true
	half := map[string]string{v1alpha1.AnnotationAllowedDelay: "30m"}
	for name, c := range map[string]struct {
		pod    *v1.Pod
		held   bool
		refuse bool
	}{
		"unmarked":           {pod: podOf(0, nil)},
		"other annotations":  {pod: podOf(0, map[string]string{"a": "b"})},
		"marked":             {pod: podOf(0, half), held: true},
		"delay used up":      {pod: podOf(31*time.Minute, half)},
		"beyond the maximum": {pod: podOf(61*time.Minute, map[string]string{v1alpha1.AnnotationAllowedDelay: "24h"})},
		"no delay":           {pod: podOf(0, map[string]string{v1alpha1.AnnotationAllowedDelay: "0s"})},
		"strategy only":      {pod: podOf(0, map[string]string{v1alpha1.AnnotationStrategy: "carbon"})},
		"run now": {pod: podOf(0, map[string]string{
			v1alpha1.AnnotationAllowedDelay: "30m", v1alpha1.AnnotationRunNow: "true",
		})},
		"nonsense": {pod: podOf(0, map[string]string{v1alpha1.AnnotationAllowedDelay: "-1h"}), refuse: true},
		"owned": {pod: podOf(0, half, func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: &yes}}
		})},
		"tried before": {pod: podOf(0, half, func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{
				Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
			}}
		})},
		"held before a restart": {held: true, pod: podOf(0, half, func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{
				Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated,
			}}
		})},
		"scheduling gates": {pod: podOf(0, half, func(p *v1.Pod) {
			p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}}
		})},
		"system namespace": {pod: podOf(0, half, func(p *v1.Pod) { p.Namespace = "kube-system" })},
		"system priority": {pod: podOf(0, half, func(p *v1.Pod) {
			p.Spec.PriorityClassName = "system-node-critical"
		})},
	} {
		t.Run(name, func(t *testing.T) {
			g := gateFor(10)
			_, held, _, no := g.ask(c.pod)
			if held != c.held || (no != refusal{}) != c.refuse {
				t.Errorf("held = %v, refusal = %q, want %v and %v", held, no.text, c.held, c.refuse)
			}
			if _, _, first, again := g.ask(c.pod); first || again != (refusal{}) {
				t.Errorf("the gate reports the refusal again: %q", again)
			}
		})
	}
}

// TestPodsWithSchedulingGatesAreAskedForAgain verifies that the gate makes no decision about a pod with scheduling
// gates, which may remain for hours, and that the pod does not count against the limit.
func TestPodsWithSchedulingGatesAreAskedForAgain(t *testing.T) {
	g := gateFor(10)
	pod := podOf(0, map[string]string{v1alpha1.AnnotationAllowedDelay: "30m"}, func(p *v1.Pod) {
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}}
		p.Status.Conditions = []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated,
			Message: messageOfGates,
		}}
	})
	if _, held, first, _ := g.ask(pod); held || first || g.held.Load() != 0 {
		t.Errorf("held = %v, first = %v, number of held pods = %d, want none", held, first, g.held.Load())
	}
	pod.Spec.SchedulingGates = nil
	if _, held, first, _ := g.ask(pod); !held || !first {
		t.Errorf("held = %v, first = %v without scheduling gates, want both", held, first)
	}
	if heldBefore(pod) {
		t.Error("heldBefore() = true for the condition of the API server")
	}
}

func TestReleasedIsFinal(t *testing.T) {
	g := gateFor(10)
	pod := podOf(0, map[string]string{v1alpha1.AnnotationAllowedDelay: "30m"})
	g.ask(pod)
	if !g.release(pod.UID) || g.release(pod.UID) {
		t.Error("the pod is not released exactly once")
	}
	if _, held, _, _ := g.ask(pod); held {
		t.Error("the pod is held again")
	}
	if n := g.held.Load(); n != 0 {
		t.Errorf("the number of held pods is %d", n)
	}
}

// TestGateComparesTheDeadline verifies that the gate admits a pod at its deadline even if the loop does not release
// it.
func TestGateComparesTheDeadline(t *testing.T) {
	g := gateFor(10)
	pod := podOf(0, map[string]string{v1alpha1.AnnotationAllowedDelay: "30m"})
	g.ask(pod)
	g.clock = clockAhead(31 * time.Minute)
	if _, held, _, _ := g.ask(pod); held {
		t.Error("the pod is held beyond its deadline")
	}
}

func TestPanicInTheGatePasses(t *testing.T) {
	t.Cleanup(panics.Reset)
	l := New(Config{})
	l.gate.clock = nil
	if _, held := l.Hold(podOf(0, map[string]string{v1alpha1.AnnotationAllowedDelay: "30m"})); held {
		t.Error("the pod is held")
	}
}

func BenchmarkHold(b *testing.B) {
	l := New(Config{})
	for name, pod := range map[string]*v1.Pod{
		"unmarked": podOf(0, map[string]string{"a": "b"}),
		"held":     podOf(0, map[string]string{v1alpha1.AnnotationAllowedDelay: "30m"}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Hold(pod)
			}
		})
	}
}
