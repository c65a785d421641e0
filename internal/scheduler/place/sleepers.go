package place

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// sleepers finds nodes that sleep. A nil sleepers finds none.
type sleepers struct {
	handle fwk.Handle
	clock  func() time.Time
	since  *lru.Cache // time of the first failed cycle by pod UID; the condition may be older if the pod was gated
}

// bootPatience is how long an unschedulable pod waits for a node to wake up before other pods may be evicted for
// it. It allows for several boots, and one of them may fail.
const bootPatience = 10 * time.Minute

// find returns the name of a sleeping node that would pass all filters for the pod if it were awake. It returns ""
// if there is none, or if the pod has waited longer than bootPatience.
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
