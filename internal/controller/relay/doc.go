// Package relay allows every replica to serve the HTTP API by forwarding requests to the leader. It also issues and
// publishes the certificates that clients use to verify the replicas.
//
// Invariants and the tests that verify them:
//
//   - A request reaches the leader and is never forwarded in a loop: TestRelay.
//   - Requests do not wait for an API server that hangs; the last known leader is used meanwhile:
//     TestRelayWhileTheAPIServerHangs.
//   - A certificate survives restarts and power failures: TestCertificateIsKept, TestTornCertificate.
//   - Clients with an older bundle can still verify the replicas: TestAuthorityIsPublished.
package relay
