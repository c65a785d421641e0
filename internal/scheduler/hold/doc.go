// Package hold decides when Jobs and bare pods start. It holds Jobs and pods that may wait until the window that a
// strategy has chosen. It never holds them beyond their deadline, which is the creation time plus the allowed
// delay.
//
// # Purpose
//
// The MutatingAdmissionPolicy in deploy/hold creates Jobs suspended and with a label. The loop releases a Job by
// clearing spec.suspend. Bare pods are held by a PreEnqueue plugin that calls [Loop.Hold]. The loop releases a pod
// by activating it in the scheduler's queue. [Loop.Run] plans and releases the held objects, and writes to each
// object why it waits. There is one loop per process. The states and transitions of a [hold] are documented at the
// type state in hold.go.
//
// # Invariants and their tests
//
//   - No object is held past its deadline, even if signals, the view or the strategy fail, while the API server is
//     available and at least one process runs the loop. Deadlines take precedence over every limit:
//     TestDeadlinesBeatEveryLimit, TestDeadlinesCallFirst, TestDeadlinesAreKeptWhileTheViewPanics,
//     TestStandbyReleasesAtDeadlines.
//   - Releases for a deadline happen earlier by a lead, which is measured from the start latency of released work, so
//     that work starts in time if the cluster has capacity: TestDeadlinesBeginEarlyEnoughForAllToStart. Other holds are
//     released before their window by at most the measured latency: TestNextNamesTheInstantThatDueActsOn.
//   - Holds with an open window are released in order of age: TestOldestFirst, TestNoJobStarves. They are released
//     as fast as the cluster starts them without delaying other work by much: TestReleaseIsAsFastAsTheCluster,
//     TestOthersKeepTheirShare. Two optional limits bound the rate of releases: TestReleaseRateIsKept,
//     TestRampIsKept.
//   - An open window stays open, and a release is final: TestLimitsChangeWhileATurnIsAwaited,
//     TestWindowsStayOpenUnderANewLeader, TestReleasedIsFinal.
//   - Plans that depend on a forecast change rarely, and only if the change saves enough; see the constants in plan.go:
//     TestOscillatingForecastsDoNotMoveHolds, TestPlansMoveForAGain.
//   - Holds with a rule such as "guarded" are planned jointly and outside the loop (joint_plan.go):
//     TestTheCleanHourIsShared. Otherwise, each hold is planned separately: TestWithoutAPlanEachIsPlannedAlone.
//   - Objects that must never be held (see package policy) are released as soon as they are observed:
//     TestJobsThatAreNotToBeHeldAreLetGo, TestGateHoldsOnlyWhatMayWait.
//   - A hundred thousand holds fit into the memory of a scheduler, and have almost no effect on the duration of an
//     iteration: TestManyHoldsFitBesideAScheduler, BenchmarkTurnOfManyHolds.
//
// # Failure modes
//
//   - Signals disappear while objects are held. Existing plans remain unchanged, because missing signals cannot prolong
//     a hold, and releasing all objects simultaneously would move the load to the time that the forecast advised
//     against: TestSignalsThatVanishLeaveThePlan. Objects that have not been planned yet, objects that only waited for
//     better signals, and pods after a restart are released, because objects are not held without data:
//     TestJobWithoutSignalsRunsAtOnce, TestHopeEndsWithTheSignals.
//   - The view source or the strategy panics. Deadlines are enforced with the data from before the panic, and objects
//     that cannot be planned are released. A panic affects one object or one step of an iteration:
//     TestPanickingStrategyHoldsNothing, TestReleasesThatPanicAreTriedAgain, TestPodsGoWhileTheRecorderPanics.
//   - The API server rejects a release. The release is retried within a second of the deadline, then with a backoff of
//     up to four seconds: TestReleaseIsRepeatedUntilItIsAccepted. Rejected notes are retried a few times.
//   - Too many notes are queued. Annotations and conditions are postponed, and events are dropped. Writing a note never
//     blocks a release and never happens under a lock.
//
// # Multiple replicas
//
// Every replica enforces deadlines, which is idempotent. Only the holder of the Lease kubenergy-hold releases Jobs
// at their windows and writes to objects. Every replica activates pods in its own queue, because only the queue of
// the leading scheduler is used, and any replica may become the next leader.
//
// # Requirements for callers
//
//  1. Pass a dedicated client with a rate limit of at least 200 requests per second and a burst of 400, and at least
//     twice the number of objects that the cluster can start per second. At a deadline, releases must not wait for
//     other requests.
//  2. Call [Loop.WatchPods] with the scheduler's pod informer and then [Loop.SetActivator] from the factories of the
//     plugins. Until then, no pods are released and no starts are observed.
//  3. Call Run in standby replicas, too. It must not wait for the leader election of the scheduler.
package hold
