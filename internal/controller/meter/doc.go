// Package meter asks the meters that stand in the network what nodes draw at the wall: Shelly plugs and clamps, Tasmota
// plugs, and the management controllers of servers by Redfish. A file says which meter belongs to which node.
//
// A meter gives readings of a counter, as agents' meters do, and the watts of now. Where an agent covers a node, the
// watts are shown and compared with what it says, and nothing is booked; where none does, package
// controller/estimate divides what the meter counted. docs/how-to/meters.md describes the file, docs/decisions/0014
// what is booked.
//
// # Invariants, and the tests that hold them
//
//   - The channels of a device count all or none: half of what a node draws is not what it draws, and a
//     node whose meters do not all answer has no watts (TestPowerOfACounter, TestDeadMetersDelayNoOther).
//   - A counter that falls, disappears or changes its unit begins a new run, and no joule is counted twice
//     (TestCounterRuns). A coarse counter is filled in by power, by less than one of its steps
//     (TestCoarseCounterIsFilledIn).
//   - A password is sent only as its device wants it, never to MD5 or across a redirect, and is in no error
//     (TestDigestByMD5, TestRedirects, TestBadAnswers).
//   - Requests stay on the server that the file names (TestForgedRequests, TestLinksStayOnTheServer).
//
// # Failures
//
// Each meter has a goroutine and one request at a time. A meter that does not answer is asked less and less, and
// delays no other: meters that failed last time share a few places of their own (TestDeadMetersDelayNoOther). A server
// that refuses a password is left alone for a minute and more, as it may lock the account (TestRefusedPasswords).
package meter
