// Package batch plans the pods that wait for a node, all at once, while kube-scheduler goes on with one at a time.
//
// A [Planner] knows the pods that wait. At the beginning of a pod's scheduling cycle it returns what the plan in force
// has for that pod, or that there is none: then the cycle is an ordinary one. Now and then it returns as well that a
// plan is wanted, and the cycle hands over a copy of the nodes; a goroutine of the planner solves, and cycles do not
// wait for it.
//
// A plan is a proposal. Nothing is kept free for it, it says nothing about pods that are not in it, and it is
// forgotten when its time has passed. Whether a planned node still fits is checked by the pod's own cycle, not here.
//
// The caller
//  1. calls [Planner.Put] for pods that come or change, and [Planner.Drop] for those that are bound, gone or not to
//     be planned;
//  2. calls [Planner.Turn] at the beginning of a pod's cycle, and [Planner.Ask] whenever that says so;
//  3. calls [Planner.Requeue] when the pod got no node in its cycle or was not bound after all, and before it
//     [Planner.Exclude] if that was the plan's doing: such a pod is never planned again;
//  4. runs [Planner.Run] until it has no more questions.
package batch
