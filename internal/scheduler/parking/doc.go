// Package parking implements a scheduling queue that keeps held pods outside of kube-scheduler's own queue.
//
// # Purpose
//
// kube-scheduler stores a pod that is rejected by PreEnqueue among the unschedulable pods. It iterates over these
// with its queue locked whenever a pod is bound, updated or deleted and whenever a node changes. None of these
// events can affect a held pod, which only becomes schedulable when its gate releases it. Therefore held pods are
// parked, and enter the queue when they are released.
//
// # Invariants and their tests
//
//   - A pod is either parked or in the wrapped queue, never both, regardless of the order in which it is added,
//     updated, deleted and released: TestPodsStandInOnePlace, TestReleasesRaceWithUpdates.
//   - Parked pods enter the queue in their latest version, oldest first: TestUpdatesLetGo,
//     TestTheOldestLeaveFirst.
//   - No pod remains parked if it is no longer held or has been deleted: TestNoPodIsForgotten,
//     TestParkedPodsAreForgotten.
//   - Pods of profiles without a hold plugin, and pods with scheduling gates, are left to kube-scheduler:
//     TestInstall, TestPodsThatOthersGated.
//
// # Failure modes
//
//   - The hold loop stops. All parked pods are checked every 30 seconds, and the gate admits each pod after its
//     deadline has passed.
//   - The gate panics. The plugin place.Hold admits the pod, so it enters the queue.
//   - kube-scheduler changes the interface of its queue. This package no longer compiles.
package parking
