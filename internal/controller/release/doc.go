// Package release releases held Jobs that are past their deadlines and were not released by a scheduler. It is the
// second releaser that guarantees promise P1: no Job starts more than one second late while a scheduler or a
// controller is running.
//
// Invariants and the tests that verify them:
//
//   - The deadlines are equal to those of the hold loop, even if no scheduler has processed the Job. No annotation of a
//     Job extends its hold: TestTheHoldLoopHasTheSameDeadlines, TestDeadlinesOfJobsThatNoSchedulerHasSeen.
//   - Held Jobs get an event while no scheduler is running, and the rate of events is limited:
//     TestEventsSayThatNoSchedulerRuns.
//   - All replicas release Jobs, and each Job is released once: TestOverdueJobsAreReleased.
//   - Deadlines use the clock of the API server, so an incorrect local clock does not release Jobs early:
//     TestReleaserFollowsTheServersClock.
//   - While the API server is unavailable, requests are limited by backoff, and no Job is forgotten:
//     TestReleaserWaitsForTheServer.
//   - Among thousands of suspended Karmada bindings, those with Jobs that are not held are released, and no requests
//     are sent for the others: TestManyBindings.
//   - A Job that its owner has taken over is not changed: TestReleaserRespectsATakeover.
package release
