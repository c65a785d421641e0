// Package intake implements the endpoint that receives batches of agents and records them in the ledger. It
// authenticates the sender, rejects impossible batches, resolves consumers, and adds emissions and costs.
//
// A batch passes these steps in this order. Those marked with * modify the state of its node.
//
//  1. sender authenticates the sender (sender.go; 401, 403), and read returns the body (read_batch.go).
//  2. admit* acknowledges a batch that is already in the ledger, even if it would be rejected now, because an agent
//     must be able to discard batches that it has delivered. It takes the quota of new streams, and returns it unless
//     the batch starts a stream (book.go, node_progress.go).
//  3. correct replaces impossible times (clock_skew.go).
//  4. check* rejects impossible batches on the basis of settings of administrators and hardware tables, and never on
//     the basis of data of the agent. It claims a part of the node's envelope until the batch is written
//     (envelope.go).
//  5. confirmHost* removes a host that does not report the node, and takes the quota of hosts (host.go). compare* marks
//     nodes that deviate from their hardware model (envelope.go).
//  6. resolve* returns the consumers of shares, and takes the quota of names (resolve.go, name_quota.go).
//  7. capShares limits the shares of new pods (cap.go), and classify returns the accounts to charge (classify.go).
//  8. price adds the emission and cost factors (price.go).
//  9. commit* writes the booking, and updates the progress and the guests of the node once it is durable (book.go).
//  10. count updates the metrics (metrics.go), and encodeAck returns the acknowledgement (ack.go).
//
// If a step fails, the response makes the agent keep the batch. Quotas of hosts and names are taken after the check, so
// that impossible batches do not use them up. Estimates of the controller (Local in handler.go) start at step 3.
// Bookings of members (member.go) contain their consumers, so steps 5 to 7 are replaced by the quota of names, and they
// have an acknowledgement of their own.
//
// A compromised node can only forge its own energy, up to its maximum power. Pods that do not run on the node are
// not charged, and a machine is a guest of a host only if the host reports it.
//
// Invariants and their tests: a batch is recorded once, and acknowledged only when it is durable (handler_test.go).
// The claims of a node stay within its physical envelope (envelope_test.go), and it can start only a limited number
// of streams per day (stream_limits_test.go). Names come from the cluster and never from batches
// (pod_index_test.go). A store that opens late does not stop the controller (lazy_store_test.go).
package intake
