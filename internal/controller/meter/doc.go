// Package meter reads power meters on the network that measure nodes at the wall: Shelly plugs and clamps, Tasmota
// plugs, and the management controllers of servers with the Redfish API. A configuration file assigns meters to
// nodes.
//
// A meter provides readings of an energy counter, like the meters of agents, and the current power. If a node has
// an agent, the power is displayed and compared with the agent's value, but not recorded. Otherwise package
// controller/estimate attributes the energy of the counter to the pods. The file is documented in
// docs/how-to/meters.md, and the recording of the energy in docs/decisions/0014.
//
// # Invariants and the tests that verify them
//
//   - The channels of a device are read together or not at all, and the power of a node is known only if all of its
//     meters respond, because a part of the power would be misleading (TestPowerOfACounter,
//     TestDeadMetersDelayNoOther).
//   - A counter that decreases, disappears or changes its unit starts a new run, and no energy is counted twice
//     (TestCounterRuns). A coarse counter is interpolated with the power, by less than one of its steps
//     (TestCoarseCounterIsFilledIn).
//   - A password is sent only in the way that its device supports. It is never used with MD5, sent to a redirect target
//     or included in errors (TestDigestByMD5, TestRedirects, TestBadAnswers).
//   - Requests are sent only to the server in the file (TestForgedRequests, TestLinksStayOnTheServer).
//
// # Failures
//
// Each meter has its own goroutine and at most one request in flight. A meter that does not respond is polled with
// exponential backoff. It does not delay other meters, because failing meters share a separate concurrency limit
// (TestDeadMetersDelayNoOther). After a rejected password the backoff starts at one minute, because the server may
// lock the account (TestRefusedPasswords).
package meter
