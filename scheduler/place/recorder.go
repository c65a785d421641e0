package place

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/scheduler/record"
)

// unrecorded is what was decided on, until the next pod's turn.
type unrecorded struct {
	of       *request // whose snapshot it is
	snapshot sched.Snapshot
	nodes    copies
}

// keepSnapshot keeps the snapshot at hand for Reserve, with all nodes that were to choose from. Nothing else is copied:
// what it points to is used again in the next cycle only.
func (e *Energy) keepSnapshot(r *request, nodes []fwk.NodeInfo) {
	if !e.recorder.Enabled() {
		return
	}
	u := &e.unrecorded
	u.of, u.snapshot = r, e.scratch.snapshot
	e.copyNodes(&u.nodes, e.candidates(r, nodes), u.snapshot.Now)
	u.snapshot.Nodes = u.nodes.refs
}

const draftKey fwk.StateKey = EnergyName + "/record"

// draft is the record of a placement while the pod is bound.
type draft struct{ record *record.Draft }

// Clone implements [fwk.StateData]. A draft is looked at by the cycle alone that made it.
func (d *draft) Clone() fwk.StateData { return d }

// draft prepares the record of the decision on a pod. The recorder copies what it needs; it is sent when the pod is
// bound.
func (e *Energy) draft(state fwk.CycleState, r *request, pod *v1.Pod, node string) {
	kind, owner := policy.OwnerOf(pod)
	d := record.Entry{Record: ledger.Record{
		Action: record.Place, At: e.clock(), Namespace: pod.Namespace, OwnerKind: kind, Owner: owner,
		UID: string(pod.UID), Strategy: r.settings.Where, Node: node, Reason: sched.Cheapest.String(),
	}}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch f := followed(state); {
	case f != nil && f.leads(node):
		d.Reason = sched.Planned.String()
		d.NoSnapshot = fmt.Sprintf("by a plan for %d pods that waited", f.Of)
	case e.unrecorded.of == r:
		d.Question = &e.unrecorded.snapshot
	default:
		d.Reason = sched.NoOpinion.String()
		d.NoSnapshot = "not scored: one node was left, the strategy had no opinion, or the scores of a pod like it " +
			"were used again"
	}
	state.Write(draftKey, &draft{e.recorder.Draft(&d)})
	e.unrecorded.of = nil
}

// takeDraft returns the record of the cycle's decision, once.
func (e *Energy) takeDraft(state fwk.CycleState) *record.Draft {
	if !e.recorder.Enabled() {
		return nil
	}
	data, err := state.Read(draftKey)
	if err != nil {
		return nil
	}
	d := data.(*draft)
	taken := d.record
	d.record = nil
	return taken
}

// PostBind records the placement. One that was not carried out is none: the pod is placed again.
func (e *Energy) PostBind(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ string) {
	defer e.rescue.from("PostBind", nil)
	e.recorder.Send(e.takeDraft(state))
}
