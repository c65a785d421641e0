// Package budget enforces EnergyBudgets and the budgets that annotations set for individual workloads. Every few
// seconds a sweep queries the ledger for the energy used and starts the actions that have reached their thresholds,
// each exactly once.
//
// # Invariants and the tests that verify them
//
//   - An action is claimed before it is carried out, in the status of the budget or in an annotation of the workload.
//     The claim is written with the observed resource version, so only one of several controllers can write it and
//     carry out the action (TestTwoControllers, TestAnyOrder).
//   - All actions are idempotent, because any controller starts an action again if it is not done within takeOver. The
//     names of events are derived from the action, webhooks receive an idempotency key, and a suspended Job is not
//     suspended again (TestControllerDies).
//   - Jobs are suspended and resumed only at the observed resource version (TestTheServerHasConflicts). Jobs that must
//     never be held are never suspended. No Job is suspended while holding is disabled, so that deadlines and
//     uninstalling take precedence over budgets (TestSuspendAndResume).
//   - A sweep suspends Jobs first and does not wait for other actions. These are tasks in lanes with their own workers
//     (TestSlowActionsDelayNoOther). A lane is bounded, and a task that does not fit is started again later
//     (TestTasksAreBounded). A webhook that hangs delays only its own namespace
//     (TestOneNamespaceDoesNotKeepOthersBack).
//   - A Job exceeds its limit by at most one sampling interval before it is suspended (TestOverrun).
//   - Many budgets are evaluated with few ledger queries (TestNamesAreAskedTogether).
//
// # Failures
//
//   - If the ledger is unavailable, no new action is started. Suspended Jobs remain suspended until the end of their
//     period, which is stored in an annotation of the Job (TestUnknownIsNotNothing, TestResumedByWhatIsWrittenOnJobs,
//     TestLedgerThatHangs).
//   - After a restart of the controller, no Job is resumed before the caches of Jobs and pods are synced
//     (TestRestartResumesNothing).
//   - If a webhook is unavailable, it is retried for a day with exponential backoff (TestNoticesAreRetriedForADay).
//   - Unknown emissions or costs are not treated as zero. The status contains the fraction of the energy without a
//     known value (TestUnknownIsNotNothing).
package budget
