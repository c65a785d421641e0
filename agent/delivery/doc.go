// Package delivery brings attributed energy from a node to the central unit, each joule once. The [Queue] collects what
// is attributed into numbered batches and keeps them, in memory and in the agent's state directory; the [Pusher] sends
// them. docs/protocol.md says what is sent and what is promised.
//
// The agent calls [Queue.Add] and [Queue.Save] once per tick, in this order, and stops doing so before it stops the
// pusher, which then sends what is left.
package delivery
