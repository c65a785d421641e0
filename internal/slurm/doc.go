// Package slurm starts delayable Slurm jobs at the time with the lowest cost. A job is delayable if its comment
// contains the annotations of KubEnergy, for example --comment=kubenergy:allowed-delay=6h. The [Driver] reads
// pending jobs from slurmrestd, decides with package sched when each job should start, and sets its BeginTime
// accordingly.
//
// # Scope
//
// The driver only changes the BeginTime of pending jobs that allow it. It does not change holds, priorities, QOS,
// reservations or nodes of jobs. Slurm still decides where and in which order jobs run. If [PowerOptions] contains
// a program, the driver runs it to suspend and resume nodes.
//
// # Invariants and their tests
//
//   - No BeginTime is later than the deadline of the job, so that Slurm starts the job in time even if the driver
//     is down: TestDeadlines, `make slurm` (test/slurm).
//   - Changes by users and administrators take precedence: another BeginTime, a hold or a release (TestOthersWin).
//   - A BeginTime that has passed or was withdrawn is not set again: TestReleasedIsFinal.
//   - On errors, no job is changed. This includes a slurmrestd that is down, slow, of an unknown version or
//     rejecting requests, and invalid policies, signals and annotations (TestFailsOpen). The log and the metrics
//     report the cause and a solution.
//   - A hanging slurmrestd or an endless response uses a limited amount of time and memory: TestChangesThatHang,
//     TestSlowChanges, TestAnswersAreBounded.
//   - If the state file is unreadable, no BeginTime of an existing job is changed: TestUnreadableMemory.
//   - A node with running jobs is not suspended, and a node needed for a planned job is resumed in time:
//     TestNodesSleep, `make slurm`.
//   - The account of a job is known when its energy is reported, even if it started after the last pass:
//     TestAccountOfANewJob.
//
// # Usage
//
// The caller must provide rules and signals, store the decisions passed to [Options.Record], and run the driver in
// a single process.
package slurm
