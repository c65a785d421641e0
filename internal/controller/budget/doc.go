// Package budget keeps to EnergyBudgets and to the budgets that annotations give to single workloads. Every few seconds
// a sweep asks the ledger what was used, and begins the actions whose threshold is reached, each once.
//
// # Invariants, and the tests that hold them
//
//   - An action is claimed before it is done: in the budget's status, or in an annotation of the workload, with the
//     version of the object that was seen. Of several controllers only one can write the claim, so only one acts
//     (TestTwoControllers, TestAnyOrder).
//   - Everything can be done twice with one effect, because an action that was begun and not done within takeOver is
//     begun again by any controller: names of events follow from the action, webhooks carry a key, a Job that is
//     suspended is not suspended again (TestControllerDies).
//   - Jobs are suspended and resumed only as they were seen, by resourceVersion (TestTheServerHasConflicts). What must
//     never be held is never suspended, and nothing is suspended while holding is switched off, so that deadlines and
//     uninstalling win over budgets (TestSuspendAndResume).
//   - A sweep suspends first and waits for nothing else. Other actions are tasks in lanes with workers of their own
//     (TestSlowActionsDelayNoOther). A lane is bounded: a task that does not fit is taken over later
//     (TestTasksAreBounded), and a webhook that hangs delays its own namespace alone
//     (TestOneNamespaceDoesNotKeepOthersBack).
//   - A Job uses at most one sampling interval more than its limit before it is suspended (TestOverrun).
//   - Many budgets share few queries of the ledger (TestNamesAreAskedTogether).
//
// # Failures
//
//   - The ledger does not answer: no new action begins, and what is suspended stays so until the end of its period,
//     which is written on the Job (TestUnknownIsNotNothing, TestResumedByWhatIsWrittenOnJobs, TestLedgerThatHangs).
//   - The controller restarts: nothing is resumed before all Jobs and pods are known (TestRestartResumesNothing).
//   - A webhook is away: it is tried for a day, ever more rarely (TestNoticesAreRetriedForADay).
//   - Emissions or costs of some energy are unknown: they are not taken for zero; the status tells the share of that
//     energy (TestUnknownIsNotNothing).
package budget
