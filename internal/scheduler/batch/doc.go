// Package batch plans all pods that wait for a node jointly, while kube-scheduler continues to schedule one pod at
// a time.
//
// A [Planner] tracks the waiting pods. At the start of the scheduling cycle of a pod, it returns the step of the
// current plan for that pod. If there is none, the cycle is an ordinary one. If a new plan is needed, the cycle
// passes a copy of the nodes to the planner, which computes the plan in its own goroutine, so that cycles do not
// wait for it.
//
// A scheduler that keeps up with the arrival of pods places each pod before a plan exists. Therefore the planner can
// keep new pods out of the queue for a moment, see [Planner.Gather]. It plans them together and then activates them.
//
// A plan is a proposal. It does not reserve capacity, does not apply to pods that are not part of it, and expires
// after a while. The pod's own cycle checks whether a planned node is still feasible.
//
// The caller must
//  1. call [Planner.Put] for each pod that is added or updated, and [Planner.Drop] for each pod that is bound, deleted
//     or excluded from planning;
//  2. call [Planner.Turn] at the start of each cycle, and [Planner.Ask] whenever Turn requests it;
//  3. call [Planner.Requeue] if the pod was not placed or not bound, preceded by [Planner.Exclude] if the plan was the
//     cause, in which case the pod is never planned again;
//  4. call [Planner.GatherWith] first if pods are gathered;
//  5. run [Planner.Run] in a goroutine.
package batch
