package place

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/scheduler/live"
)

// nodesOf returns what looks up a node in the scheduler's snapshot, which holds still during a cycle.
func nodesOf(handle fwk.Handle) func(name string) (fwk.NodeInfo, error) {
	if handle == nil {
		return nil
	}
	return func(name string) (fwk.NodeInfo, error) { return handle.SnapshotSharedLister().NodeInfos().Get(name) }
}

// fillExpected notes what pods like this one were measured to draw.
func (e *Energy) fillExpected(r *request, pod *v1.Pod) {
	if e.live != nil {
		r.job.Expected, r.job.HasExpected = e.live.Expected(live.OwnersOf(pod), r.job.Nominal())
	}
}

// reserveWatts notes what the pod will draw on its node, until a meter has seen it.
func (e *Energy) reserveWatts(r *request, pod *v1.Pod, nodeName string) {
	if e.live == nil {
		return
	}
	one := []sched.Node{{Name: nodeName}}
	if e.nodes != nil {
		if n, err := e.nodes(nodeName); err == nil {
			one[0] = coreNode(r.view, n)
			annotated(&one[0], n, e.clock())
			e.live.Fill(one)
		}
	}
	e.live.Reserve(string(pod.UID), nodeName, one[0].Added(&r.job))
}
