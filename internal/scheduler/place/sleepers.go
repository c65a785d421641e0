package place

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// sleepers find machines that sleep. Nil sleepers find none.
type sleepers struct {
	handle fwk.Handle
	clock  func() time.Time
	since  *lru.Cache // when a pod fitted nowhere first, by UID: its condition may be older, from when it was gated
}

// bootPatience is for how long a pod that fits nowhere waits for a machine to wake before others may be evicted for it:
// several boots, one of which may fail.
const bootPatience = 10 * time.Minute

// find returns the name of a machine that is not awake and would take the pod if it were awake, by the judgement of
// all filters; "" where there is none, or the pod has waited for long.
func (s *sleepers) find(ctx context.Context, state fwk.CycleState, pod *v1.Pod) string {
	if s == nil {
		return ""
	}
	since, ok := s.since.Get(pod.UID)
	if !ok {
		since = s.clock()
		s.since.Add(pod.UID, since)
	}
	if s.clock().Sub(since.(time.Time)) > bootPatience {
		return ""
	}
	nodes, err := s.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return ""
	}
	for _, n := range nodes {
		if n.Node().Labels[v1alpha1.LabelPowerState] == "" {
			continue
		}
		node := *n.Node()
		node.Spec.Taints = v1alpha1.WithoutSleep(node.Spec.Taints)
		awake := n.Snapshot()
		awake.SetNode(&node)
		if s.handle.RunFilterPlugins(ctx, state, pod, awake).IsSuccess() {
			return node.Name
		}
	}
	return ""
}
