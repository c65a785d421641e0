// Package sched is the core of KubEnergy: one pure function from a [Snapshot] to a [Plan].
//
// There is no clock, context, log, goroutine, mutable global, I/O or random source in here. Time, staleness and seed
// are inputs, so the code that the simulator runs is the code that the scheduler runs, and every decision can be
// replayed from its snapshot.
//
// A strategy answers two questions. Where: an argmin over nodes, several sites and grid zones at once. When: an argmin
// over start times. [Snapshot.Estimate] is the only place that knows physics and tariffs; a strategy only says which
// part of an estimate it minimises. Files of this package that begin with start have the start rules; the packages
// below have the rest: placement the costs of nodes, strategy both combined by name, as in "carbon+window", codec the
// written form of a snapshot, and sleep the power states of machines.
//
// # What the caller must do
//
//  1. Fill the Snapshot and leave it alone while Plan runs. Strategies read it and keep nothing of it.
//  2. Decide feasibility. With one job in the queue, Nodes are the nodes that the real scheduler found feasible for it
//     (affinity, taints, volumes are its business), and Plan does not second-guess them. With several jobs, [Job.Fits]
//     stands in for feasibility; it is a model of CPU, memory, GPU and labels, and is called one.
//  3. Carry out decisions: run the job on Decision.Node if [Decision.Held] is false, otherwise keep it and release it
//     at Window.Start. A decision without a node that is not held is no opinion: do what stock would do. One that is
//     held [Decision.InLine] waits for others to end as well: the job keeps its place in the queue, and is asked
//     about whenever one does.
//  4. Set Job.Released when a job was held and let go. Released is final: such a job is never held again.
//  5. Ask again at Decision.Again where that is set, instead of releasing or of leaving alone what runs: with
//     Job.Running and Job.Done as they are then, and with Job.Worked where nodes are not all of speed 1. A running
//     job that is held then is to be suspended; else it goes on where it is. Only strategies that
//     [strategy.Greedy.Interrupts], and only jobs that are Interruptible, are asked about while they run. Where the
//     answer has other Decision.Replicas than the job has, it goes on with so many. Set Job.RoomAssured only if no
//     other job can take the room of as many replicas as the job may want, or if [strategy.Greedy.Replans], there is
//     one node, all jobs are [Job.Even], and each has room on it when it is alone: such a strategy makes the room.
//  6. Set Snapshot.Last to the node of the last decision carried out.
//
// What is priced is what is known: signals that are absent or older than Policy.MaxSignalAge give no opinion and no
// hold, never a guess.
package sched
