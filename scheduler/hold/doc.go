// Package hold decides when: it keeps Jobs and bare pods that may wait from starting until the window that a strategy
// chose, and never beyond their deadline, which is their creation plus the allowed delay.
//
// Jobs are created suspended by the MutatingAdmissionPolicy in deploy/hold and carry a label; releasing one clears
// spec.suspend. Bare pods are held by a PreEnqueue plugin that asks [Loop.Hold]; releasing one activates it in the
// scheduler's queue. [Loop.Run] plans, says on each object why it waits, and releases. There is one loop in a process.
//
// # What it promises
//
//   - Nothing is held past its deadline, whatever becomes of signals, of the view and of the strategy, while the API
//     server answers and one process with a loop lives. A deadline beats every limit.
//   - Releases for a deadline begin a lead earlier, measured from how soon released work starts, so that it starts in
//     time where the cluster has room. Nothing else is released before its window by more than the measured latency.
//   - What has waited for its window is let go the oldest first, as fast as the cluster starts it without much delay to
//     others, and no faster than two limits that people may set. A window that has opened stays open.
//   - A plan that only a forecast changes is changed seldom, and only for a gain. The numbers stand in steady.go.
//   - Released is final. What was never to be held (package kube has the list) is let go when it is seen.
//   - Signals that vanish while something is held leave its plan as it is. They cannot prolong it, and releasing
//     everything at once would put the load where a forecast said that it should not be. What was not planned yet, what
//     only hoped for better signals, and pods after a restart, are let go: no data, no hold.
//
// # Several replicas
//
// Deadlines are kept by every replica; that is idempotent. Windows are kept, and objects written to, by the holder of
// the Lease kubenergy-hold. Pods are activated by every replica in its own queue, because only the queue of the leading
// scheduler matters and any of them may be that of the next one.
//
// # What the caller must do
//
//  1. Give it a client of its own with a rate limit of at least 200 requests per second and a burst of 400, and of
//     twice what the cluster can start in a second: at a deadline, releases wait for nothing else.
//  2. Call [Loop.SetActivator], and before it [Loop.WatchPods] with the scheduler's own pod informer, from the plugin's
//     factory. Without WatchPods the loop watches pods itself, which costs a second copy of each.
//  3. Run it in standbys too, beside the scheduler and not after its election.
package hold
