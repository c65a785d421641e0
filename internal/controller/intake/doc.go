// Package intake implements the endpoint that receives batches of agents and records them in the ledger. It
// authenticates the sender, rejects impossible batches, identifies consumers, and adds emissions and costs.
//
// The order of these steps matters. The sender is authenticated first (401, 403). Batches that are already in the
// ledger are then acknowledged, even if they would be rejected now, because an agent must be able to discard
// batches that it has delivered. Impossible batches are rejected on the basis of settings of administrators and
// hardware tables, and never on the basis of data of the agent. The batch is then written to the ledger and
// acknowledged once it is durable. If a step fails, the response makes the agent keep the batch.
//
// A compromised node can only forge its own energy, up to its maximum power. Pods that do not run on the node are
// not charged, and a machine is a guest of a host only if the host reports it.
//
// Invariants and their tests: a batch is recorded once, and acknowledged only when it is durable (handler_test.go).
// The claims of a node stay within its physical envelope (envelope_test.go), and it can start only a limited number
// of streams per day (stream_limits_test.go). Names come from the cluster and never from batches
// (pod_index_test.go). A store that opens late does not stop the controller (lazy_store_test.go).
package intake
