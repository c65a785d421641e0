// Package policy says who may wait for what.
//
// A workload's way through it has four steps. [ReadPod] and [ReadJob] read what stands on an object into a [Work]: its
// annotations, ours and those of other systems, become [Marks]. [Sources.Rules] reads what the cluster says, from the
// defaults and environment variables over EnergyPolicies and namespaces to budgets that are used up, into [Rules].
// [Rules.Settle] puts both together: the [Settings] that hold for the workload, and the job that the core sees.
// [Rules.Decide] asks the core when that job is to start.
//
// Each level sets [Terms], and a level above overwrites those below it: defaults, the EnergyPolicy of the cluster, the
// terms of a scheduler's name, the EnergyPolicy and annotations of the namespace, the annotations of the workload. On
// one level, what is said for a workload type comes after what is said for all.
//
// Invariants, and the tests that hold them:
//   - A value that makes no sense gives an error that names the annotation, and the workload then counts as one
//     without marks: stock Kubernetes is the answer to nonsense (TestReadMarks, FuzzReadMarks).
//   - A namespace cannot allow a longer delay than the cluster (TestMaximumDelays).
//   - Objects that another system starts, and those of the cluster itself, are never held (TestNeverHeldPod,
//     TestNeverHeldJob).
//   - A used-up budget holds new work only while the controller renews its status (TestUsedUpBudgetHoldsNewWork).
//   - Each annotation and variable of another system that is accepted changes a decision (TestEveryAliasHasAnEffect).
//
// The package is a pure function of what it is given: it talks to no API server, reads no file and changes no object.
package policy
