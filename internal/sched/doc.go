// Package sched implements the scheduling core of KubEnergy: a pure function from a [Snapshot] to a [Plan].
//
// The package uses no clock, context, logger, goroutine, mutable global, I/O or random source. The current time,
// the age of signals and the random seed are part of the snapshot. Therefore the simulator and the scheduler run
// the same code, and every decision can be replayed from its snapshot.
//
// A strategy combines two choices: the node that minimizes a cost, across all sites and grid zones, and the start
// time that minimizes a cost. Power models and tariffs are applied only in [Snapshot.Estimate]; a strategy only
// selects the part of an estimate to minimize. The files of this package with the prefix "start" implement the
// start rules. Package placement implements the costs of nodes, package strategy combines both by name, as in
// "carbon+window", package codec encodes snapshots, and package sleep decides on the power states of machines.
//
// # Requirements on the caller
//
//  1. Fill the Snapshot and do not modify it while Plan runs. Strategies only read it and do not retain references
//     to it.
//  2. Decide feasibility. If the queue contains one job, Nodes must be the nodes that the real scheduler found
//     feasible for it (including affinity, taints and volumes), and Plan does not check them again. If the queue
//     contains several jobs, [Job.Fits] replaces the scheduler's filters. It only models CPU, memory, GPUs and
//     labels.
//  3. Apply the decisions: run the job on Decision.Node if [Decision.Held] returns false, otherwise hold it and
//     release it at Window.Start. A decision that neither holds the job nor has a node means that the strategy has
//     no opinion, and the default scheduler decides. A job that is held [Decision.InLine] also waits for other
//     jobs: it retains its position in the queue and must be planned again whenever another job finishes.
//  4. Set Job.Released once a held job has been released. Released is final: the job is never held again.
//  5. If Decision.Again is set, plan the job again at that time instead of releasing it or letting it continue.
//     Job.Running and Job.Done must then be up to date, and also Job.Worked if the speed of some node is not 1. A
//     running job that the new decision holds must be suspended, otherwise it continues on its node. Running jobs
//     are only planned again if [strategy.Greedy.Interrupts] is true and the job is Interruptible. If
//     Decision.Replicas differs from the current number of replicas, the job must be scaled. Set Job.RoomAssured
//     only if no other job can use the capacity for the replicas that the job may request, or if
//     [strategy.Greedy.Replans] is true, there is one node, all jobs are [Job.Even], and each job fits on the empty
//     node: the strategy then frees the capacity itself.
//  6. Set Snapshot.Last to the node of the last decision that was applied.
//
// Costs are computed from known signals only. If a signal is missing or older than Policy.MaxSignalAge, the
// strategy has no opinion and does not hold the job. It never substitutes a guess.
package sched
