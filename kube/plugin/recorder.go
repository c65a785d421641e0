package plugin

import (
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/kube/record"
	"github.com/kubenergy/kubenergy/sched"
)

// decided is what PreScore has decided on, until the next pod's turn.
type decided struct {
	of       *request // whose snapshot it is
	snapshot sched.Snapshot
}

// note keeps the snapshot at hand for Reserve. Nothing is copied: what it points to is used again in the next cycle only.
func (e *Energy) note(r *request, s *sched.Snapshot) {
	if e.recorder.On() {
		e.decided = decided{of: r, snapshot: *s}
	}
}

// tell hands the decision on a pod to the recorder, which copies what it needs.
func (e *Energy) tell(r *request, pod *v1.Pod, node string) {
	kind, owner := record.Owner(pod)
	d := record.Decision{
		Action: record.Place, At: e.clock(), Namespace: pod.Namespace, OwnerKind: kind, Owner: owner, UID: string(pod.UID),
		Strategy: r.settings.Where, Node: node, Reason: sched.Cheapest.String(),
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.decided.of == r {
		d.Snapshot, d.Nodes = &e.decided.snapshot, e.scratch.nodes
	} else {
		d.Reason = sched.NoOpinion.String()
		d.NoSnapshot = "not scored: one node was left, the strategy had no opinion, or the scores of a pod like it were used again"
	}
	e.recorder.Tell(&d)
	e.decided = decided{}
}
