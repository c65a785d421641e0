// Package policy determines which workloads may wait, and the reasons to wait.
//
// A workload is processed in four steps. [ReadPod] and [ReadJob] convert an object to a [Work], with its
// annotations, including those of other systems, as [Marks]. [Sources.Rules] computes the [Rules] of the cluster
// from defaults, environment variables, EnergyPolicies, namespaces and used-up budgets. [Rules.Settle] combines
// both into the [Settings] of the workload and the job for the core. [Rules.Decide] computes when the job starts.
//
// Each level may set [Terms], and takes precedence over the levels before it: defaults, the EnergyPolicy of the
// cluster, the terms of a scheduler name, the EnergyPolicy and annotations of the namespace, and the annotations of
// the workload. Within a level, settings for a workload type take precedence over those for all types.
//
// Invariants and their tests:
//   - An invalid value results in an error that contains the annotation, and the workload is treated as if it had no
//     annotations, like in stock Kubernetes (TestReadMarks, FuzzReadMarks).
//   - A namespace cannot allow a longer delay than the cluster (TestMaximumDelays).
//   - Objects that other systems start, and objects of the cluster itself, are never held (TestNeverHeldPod,
//     TestNeverHeldJob).
//   - A used-up budget only holds new work while the controller renews its status (TestUsedUpBudgetHoldsNewWork).
//   - Each supported annotation and variable of another system affects a decision (TestEveryAliasHasAnEffect).
//
// All functions are pure. The package does not access an API server or files, and does not modify objects.
package policy
