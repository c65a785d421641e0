// Package dial provides HTTP clients with restricted destinations for signal providers, meters and webhooks. Their
// addresses are configured by users or returned by DNS servers, so requests must not be able to reach arbitrary
// services in the network of the controller.
//
// # Invariants and the tests that verify them
//
//   - The address is checked after name resolution and before connecting. A name that resolves to another address the
//     second time cannot bypass the check (TestAddresses, and TestReboundName of packages signal and meter).
//   - Metadata services, link-local, multicast and reserved addresses are never permitted. Private and loopback
//     addresses are permitted only by a [Policy] (TestAddresses).
//   - Redirects are not followed, proxies from the environment are ignored, and response sizes are limited.
//   - [Client.Exchange] returns new errors with a [Reason] and removes secrets from their messages (TestConceal). The
//     Retry-After header is respected up to [MaxWait] (TestRetryAfter).
package dial
