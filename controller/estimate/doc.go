// Package agentless estimates what the pods of a node used where no agent runs. Every minute it takes what the node's
// meter at the wall counted or, without one, what a power model says at the CPU usage that metrics-server reports,
// else at what pods request; and divides it among the pods with the very functions that agents use, exactly to the
// microjoule.
//
// What it makes are batches like those of agents, of the boot "central". The ledger counts them only where no agent's
// batch tells of the same time. Of a node without a meter and without a power profile nothing is known, and nothing
// is invented.
//
// The caller runs one [Estimator] in the replica that leads. Nothing that schedules depends on it.
package agentless
