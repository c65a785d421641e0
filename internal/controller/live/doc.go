// Package live stores the current power consumption of nodes, pods and workloads in memory. The scheduler polls
// these values, and the CLI displays them. The state is updated after each batch is committed to the ledger and
// with the readings of network power meters.
//
// Every value has a timestamp and a quality, and consumers must ignore values that are too old. The state is not
// persisted: after a restart it is empty until the agents have sent their next batches.
package live
