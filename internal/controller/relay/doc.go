// Package relay lets every replica answer the HTTP API: it passes requests on to the replica that leads, and issues
// and publishes the certificates that replicas, agents and schedulers know each other by.
//
// Invariants, and the tests that hold them:
//
//   - A request reaches the leader, and never goes in circles: TestRelay.
//   - Requests do not wait for an API server that hangs; the last leader is asked meanwhile:
//     TestRelayWhileTheAPIServerHangs.
//   - A certificate survives restarts and power cuts: TestCertificateIsKept, TestTornCertificate.
//   - What a client has read a while ago still verifies a replica: TestAuthorityIsPublished.
package relay
