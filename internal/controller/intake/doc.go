// Package intake takes batches of agents and brings them to the ledger: who sends this, may they say it of that node,
// can it be true, who are the consumers, what did a joule emit and cost.
//
// The order matters. First who sends: 401, 403. Then what was booked before is acknowledged, whatever else is wrong
// with it: an agent must be able to get rid of what it has delivered. Then what cannot be true is refused, by what
// administrators and hardware tables say of the node, never by what its agent says. Then it is booked, and once it is
// safe acknowledged. Whatever fails in between is answered such that the agent keeps the batch.
//
// A lie reaches no further than the node that tells it: its own energy, inside of what it can draw. Pods that do not
// run there are not charged with it, and only a machine that a host speaks of is a guest of that host.
//
// Invariants, and the tests that hold them: a batch is booked once, and acknowledged only when it is safe
// (handler_test.go); what a node claims stays within its physical envelope (envelope_test.go), and it begins few
// streams a day (stream_limits_test.go); names come from the cluster, never from batches (pod_index_test.go); a store
// that opens late is answered for (lazy_store_test.go).
package intake
