// Package dial makes HTTP clients that reach only where they may, for providers of signals, meters and webhooks. They
// are asked at addresses that people wrote down, or that a name server chose; the controller's own network is no place
// to be led into.
//
// # Invariants, and the tests that hold them
//
//   - The address that is really dialled decides, after names were resolved: a name that resolves to another address
//     the second time changes nothing (TestAddresses, and TestReboundName of packages signal and meter).
//   - Metadata services, link-local, multicast and reserved addresses are never dialled; private and loopback ones only
//     where a [Policy] allows them (TestAddresses).
//   - Redirects are never followed, no proxy of the environment is used, and answers are bounded.
//   - [Client.Exchange] makes its errors anew, with a [Reason], and takes what was sent in secret out of them
//     (TestConceal). Retry-After is obeyed, up to [MaxWait] (TestRetryAfter).
package dial
