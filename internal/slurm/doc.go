// Package slurm has Slurm start jobs that may wait when that costs least. A job says so in its comment, in the words of
// our annotations: --comment=kubenergy:allowed-delay=6h. The [Driver] asks slurmrestd for pending jobs, has the core
// decide when each is to start, and gives it that BeginTime.
//
// # What it may touch
//
// The BeginTime of pending jobs that ask for it, and nothing else of jobs: no hold, no priority, no QOS, no
// reservation, no node. Slurm goes on deciding who runs where and in which order. Where [PowerOptions] name a
// program, it is told which nodes are to sleep and to wake.
//
// # Invariants, and the tests that hold them
//
//   - No BeginTime is after the deadline of the job, so that Slurm itself keeps the deadline if we die: TestDeadlines,
//     `make slurm` (test/slurm).
//   - What users and administrators say to Slurm wins: a BeginTime that is not ours, a hold, a release
//     (TestOthersWin).
//   - A BeginTime that has come, or was taken back, is final: TestReleasedIsFinal.
//   - Where anything is not known, nothing is changed: slurmrestd away, slow, of an unknown version, or refusing, as
//     well as policies, signals and marks that make no sense (TestFailsOpen). The log and the metrics name the mend.
//   - A slurmrestd that hangs, or answers without an end, costs a bounded time and memory: TestChangesThatHang,
//     TestSlowChanges, TestAnswersAreBounded.
//   - If it is not known any more which BeginTimes are ours, all stay: TestUnreadableMemory.
//   - A node with work is not sent to sleep, and one that planned work needs is awake by then: TestNodesSleep,
//     `make slurm`.
//   - A job that began since the last look is known when its energy comes: TestAccountOfANewJob.
//
// # What the caller must do
//
// Give it rules and signals, keep what [Options.Record] is told, and run it in one process.
package slurm
