// Package hold decides when: it keeps Jobs and bare pods that may wait from starting until the window that a strategy
// chose, and never beyond their deadline, which is their creation plus the allowed delay.
//
// # Purpose
//
// Jobs are created suspended by the MutatingAdmissionPolicy in deploy/hold and carry a label; releasing one clears
// spec.suspend. Bare pods are held by a PreEnqueue plugin that asks [Loop.Hold]; releasing one activates it in the
// scheduler's queue. [Loop.Run] plans, writes on each object why it waits, and releases. There is one loop in a
// process. What a [hold] may do in which state stands with the type state in hold.go.
//
// # Invariants, and the tests that hold them
//
//   - Nothing is held past its deadline, whatever becomes of signals, of the view and of the strategy, while the API
//     server answers and one process with a loop lives. A deadline beats every limit: TestDeadlinesBeatEveryLimit,
//     TestDeadlinesCallFirst, TestDeadlinesAreKeptWhileTheViewPanics, TestStandbyReleasesAtDeadlines.
//   - Releases for a deadline begin a lead earlier, measured from how soon released work starts, so that it starts in
//     time where the cluster has room: TestDeadlinesBeginEarlyEnoughForAllToStart. Nothing else is released before its
//     window by more than the measured latency: TestNextNamesTheInstantThatDueActsOn.
//   - What has waited for its window is let go the oldest first: TestOldestFirst, TestNoJobStarves. It goes as fast as
//     the cluster starts it without much delay to others: TestReleaseIsAsFastAsTheCluster, TestOthersKeepTheirShare.
//     It goes no faster than two limits that people may set: TestReleaseRateIsKept, TestRampIsKept.
//   - A window that has opened stays open, and released is final: TestLimitsChangeWhileATurnIsAwaited,
//     TestWindowsStayOpenUnderANewLeader, TestReleasedIsFinal.
//   - A plan that only a forecast changes is changed seldom, and only for a gain; the numbers stand in plan.go:
//     TestOscillatingForecastsDoNotMoveHolds, TestPlansMoveForAGain.
//   - What the rule "plan" holds is planned together, beside the loop (joint_plan.go): TestTheCleanHourIsShared. Where
//     that cannot be done, each is planned alone: TestWithoutAPlanEachIsPlannedAlone.
//   - What was never to be held (package policy has the list) is let go when it is seen:
//     TestJobsThatAreNotToBeHeldAreLetGo, TestGateHoldsOnlyWhatMayWait.
//   - A hundred thousand holds fit beside a scheduler, and cost a turn of the loop next to nothing:
//     TestManyHoldsFitBesideAScheduler, BenchmarkTurnOfManyHolds.
//
// # What fails how
//
//   - Signals vanish while something is held: its plan stays as it is. They cannot prolong it, and releasing everything
//     at once would put the load where a forecast said that it should not be: TestSignalsThatVanishLeaveThePlan. What
//     was not planned yet, what only hoped for better signals, and pods after a restart, are let go: no data, no hold
//     (TestJobWithoutSignalsRunsAtOnce, TestHopeEndsWithTheSignals).
//   - The view source or the strategy panics: deadlines are kept by what is known, and what cannot be planned is let
//     go. A panic costs one object, or one part of a turn: TestPanickingStrategyHoldsNothing,
//     TestReleasesThatPanicAreTriedAgain, TestPodsGoWhileTheRecorderPanics.
//   - The API server refuses a release: it is tried again within a second of the deadline, then with pauses of up to
//     four seconds (TestReleaseIsRepeatedUntilItIsAccepted). A note that it refuses is written again a few times.
//   - Too many notes wait: annotations and conditions are put off, events are dropped. No lock is held and no release
//     waits while anything is written.
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
//  2. Call [Loop.WatchPods] with the scheduler's own pod informer and then [Loop.SetActivator], from the plugins'
//     factories. Until then no pod is released, and no start is noticed.
//  3. Run it in standbys too, beside the scheduler and not after its election.
package hold
