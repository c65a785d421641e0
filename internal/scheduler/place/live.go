package place

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/live"
)

// fillExpected sets the expected power of the job to the measured power of pods with the same owner, if available.
func (e *Energy) fillExpected(r *request, pod *v1.Pod) {
	if e.live != nil {
		r.job.Expected, r.job.HasExpected = e.live.Expected(live.OwnersOf(pod), r.job.Nominal())
	}
}

// reserveWatts reserves the expected power of the pod on its node until it is included in a measurement.
func (e *Energy) reserveWatts(r *request, pod *v1.Pod, nodeName string) {
	if e.live == nil {
		return
	}
	one := []sched.Node{{Name: nodeName}}
	if e.nodes != nil {
		if n, err := e.nodes(nodeName); err == nil {
			one[0] = coreNode(r.view, n)
			e.annotated(&one[0], n, e.clock())
			e.live.Fill(one)
		}
	}
	e.live.Reserve(string(pod.UID), nodeName, one[0].Added(&r.job))
}
