package place

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// unrecorded contains the input of the last decision until the next cycle.
type unrecorded struct {
	of       *request // the request that the snapshot belongs to
	snapshot sched.Snapshot
	nodes    copies
}

// keepSnapshot stores the snapshot of the cycle for Reserve, including all candidate nodes. It does not copy
// anything else, because the referenced memory is not reused before the next cycle.
func (e *Energy) keepSnapshot(r *request, nodes []fwk.NodeInfo) {
	u := &e.unrecorded
	u.of = r
	if !e.recorder.Enabled() {
		return
	}
	u.snapshot = e.scratch.snapshot
	all := e.candidates(r, nodes)
	e.copyNodes(&u.nodes, all, u.snapshot.Now)
	e.addEnds(&u.nodes, all, &u.snapshot)
	u.snapshot.Nodes = u.nodes.refs
}

const draftKey fwk.StateKey = EnergyName + "/record"

// draft is the record of a placement while the pod is being bound.
type draft struct{ record *record.Draft }

// Clone implements [fwk.StateData]. It does not copy, because a draft is only used by its own cycle.
func (d *draft) Clone() fwk.StateData { return d }

// noteReason stores the reason for choosing the node.
func (e *Energy) noteReason(state fwk.CycleState, r *request, node string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := followed(state)
	switch {
	case f != nil && f.leads(node):
		r.reason = sched.Planned
	case e.unrecorded.of == r:
		r.reason = sched.Cheapest
	default:
		r.reason = sched.NoOpinion
	}
}

// draft prepares the record of the placement of a pod. The recorder copies the required data and sends the record
// once the pod is bound.
func (e *Energy) draft(state fwk.CycleState, r *request, pod *v1.Pod, node string) {
	kind, owner := policy.OwnerOf(pod)
	d := record.Entry{Record: ledger.Record{
		Action: record.Place, At: e.clock(), Namespace: pod.Namespace, OwnerKind: kind, Owner: owner,
		UID: string(pod.UID), Strategy: r.settings.Where, Node: node, Reason: r.reason.String(),
	}}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch r.reason {
	case sched.Planned:
		d.NoSnapshot = fmt.Sprintf("placed by a joint plan for %d waiting pods", followed(state).Of)
	case sched.Cheapest:
		d.Question = &e.unrecorded.snapshot
	default:
		d.NoSnapshot = "not scored, because only one node was feasible, the strategy had no opinion, or the scores " +
			"of a similar pod were reused"
	}
	state.Write(draftKey, &draft{e.recorder.Draft(&d)})
	e.unrecorded.of = nil
}

// takeDraft returns the draft of the cycle and removes it, so that it is used only once.
func (e *Energy) takeDraft(state fwk.CycleState) *record.Draft {
	if !e.recorder.Enabled() {
		return nil
	}
	d := noted[draft](state, draftKey)
	if d == nil {
		return nil
	}
	taken := d.record
	d.record = nil
	return taken
}

// PostBind counts and records the placement. Placements that fail are not recorded, because the pod will be placed
// again.
func (e *Energy) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	defer e.rescue.from("PostBind", nil)
	if r := e.request(state, pod); r != nil {
		record.Decided(record.Place, r.settings.Where, r.reason.String())
	}
	e.recorder.Send(e.takeDraft(state))
}
