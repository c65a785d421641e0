// Package release lets go of held Jobs that are past their deadline and that no scheduler has released. It is the
// second releaser of promise P1: nothing starts more than a second late while a scheduler or a controller lives.
//
// Invariants, and the tests that hold them:
//
//   - Deadlines are those of the hold loop, whether a scheduler has seen the Job or not, and nothing that is written on
//     a Job prolongs its hold: TestTheHoldLoopHasTheSameDeadlines, TestDeadlinesOfJobsThatNoSchedulerHasSeen.
//   - Jobs that wait while no scheduler runs have an event, and many of them make no storm of events:
//     TestEventsSayThatNoSchedulerRuns.
//   - Every replica releases, and a Job is released once: TestOverdueJobsAreReleased.
//   - Deadlines are instants on the API server's clock. A local clock that is wrong ends no hold early:
//     TestReleaserFollowsTheServersClock.
//   - While the API server is away, it is not asked in a storm, and nothing is lost: TestReleaserWaitsForTheServer.
//   - Of thousands of suspended bindings of Karmada those are let go whose Jobs are not held, and the API server is not
//     asked about the others: TestManyBindings.
//   - A Job that its owner has taken over is left alone: TestReleaserRespectsATakeover.
package release
