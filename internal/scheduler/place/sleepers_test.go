package place

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

func (m *machine) Snapshot() fwk.NodeInfo {
	other := *m
	return &other
}

func (m *machine) SetNode(n *v1.Node) { m.node = n }

// cluster is a handle with filters that reject nodes with taints, and nodes that are named full.
type cluster struct {
	fwk.Handle
	fwk.SharedLister
	fwk.NodeInfoLister
	nodes []fwk.NodeInfo
}

func (c *cluster) SnapshotSharedLister() fwk.SharedLister { return c }
func (c *cluster) NodeInfos() fwk.NodeInfoLister          { return c }
func (c *cluster) List() ([]fwk.NodeInfo, error)          { return c.nodes, nil }

func (c *cluster) RunFilterPlugins(_ context.Context, _ fwk.CycleState, _ *v1.Pod, n fwk.NodeInfo) *fwk.Status {
	if len(n.Node().Spec.Taints) > 0 || n.Node().Name == "full" {
		return fwk.NewStatus(fwk.Unschedulable)
	}
	return nil
}

// TestAwaitBoot verifies that no pods are evicted for a pod while a node is being woken up for it. If no sleeping
// node would accept the pod, or it has waited for too long, the following plugins are called as usual.
func TestAwaitBoot(t *testing.T) {
	asleep := func(name, state string, more ...v1.Taint) fwk.NodeInfo {
		return &machine{node: &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelPowerState: state}},
			Spec: v1.NodeSpec{Taints: append(more,
				v1.Taint{Key: v1alpha1.TaintAsleep, Effect: v1.TaintEffectNoSchedule},
				v1.Taint{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute})},
		}}
	}
	own := v1.Taint{Key: "team", Effect: v1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		nodes  []fwk.NodeInfo
		waited time.Duration
		want   fwk.Code
	}{
		"none sleeps":        {[]fwk.NodeInfo{&machine{node: &v1.Node{}}}, 0, fwk.Unschedulable},
		"one sleeps":         {[]fwk.NodeInfo{asleep("a", "asleep")}, 0, fwk.UnschedulableAndUnresolvable},
		"one boots":          {[]fwk.NodeInfo{asleep("a", "booting")}, time.Minute, fwk.UnschedulableAndUnresolvable},
		"one is stopping":    {[]fwk.NodeInfo{asleep("a", "stopping")}, 0, fwk.UnschedulableAndUnresolvable},
		"it has no capacity": {[]fwk.NodeInfo{asleep("full", "asleep")}, 0, fwk.Unschedulable},
		"another taint":      {[]fwk.NodeInfo{asleep("a", "asleep", own)}, 0, fwk.Unschedulable},
		"for long":           {[]fwk.NodeInfo{asleep("a", "asleep")}, bootPatience + 1, fwk.Unschedulable},
	} {
		e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
		now := noon
		e.sleepers = &sleepers{&cluster{nodes: c.nodes}, func() time.Time { return now }, lru.New(10)}
		pod := newPod()
		pod.Status.Conditions = []v1.PodCondition{{ // the pod was gated for a day, and its condition has the same age
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
			LastTransitionTime: metav1.NewTime(noon.Add(-24 * time.Hour)),
		}}
		if c.waited > 0 {
			e.PostFilter(t.Context(), newCycle(), pod, nil)
			now = now.Add(c.waited)
		}
		if _, status := e.PostFilter(t.Context(), newCycle(), pod, nil); status.Code() != c.want {
			t.Errorf("%s: %v", name, status)
		}
		if n := c.nodes[0].Node(); name == "one sleeps" && len(n.Spec.Taints) != 2 {
			t.Errorf("the node of the scheduler was modified: %v", n.Spec.Taints)
		}
	}
}
