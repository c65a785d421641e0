// Package parking keeps held pods beside kube-scheduler's queue instead of in it.
//
// # Purpose
//
// kube-scheduler keeps a pod that PreEnqueue refuses among those that it cannot schedule, and goes through all of
// these, with its queue locked, whenever a pod is bound, changed or removed and whenever a node changes. None of that
// can change anything for a held pod: it comes when its gate lets it go. So it is parked, and enters the queue only
// then.
//
// # Invariants, and the tests that hold them
//
//   - A pod is parked or in kube-scheduler's queue, never in both, in whatever order it is added, updated, deleted and
//     let go: TestPodsStandInOnePlace, TestReleasesRaceWithUpdates.
//   - A parked pod enters the queue as its latest update has it, the oldest first: TestUpdatesLetGo,
//     TestTheOldestLeaveFirst.
//   - No pod stays parked that is no longer held or no longer there: TestNoPodIsForgotten,
//     TestParkedPodsAreForgotten.
//   - Pods of profiles that hold nothing, and pods with scheduling gates of others, are left to kube-scheduler:
//     TestInstall, TestPodsThatOthersGated.
//
// # What fails how
//
//   - The hold loop stops: all parked pods are asked about every 30 seconds, and the gate passes each whose deadline
//     has come.
//   - The gate panics: place.Hold passes the pod, which then enters the queue.
//   - kube-scheduler changes its queue's interface: this package does not compile.
package parking
