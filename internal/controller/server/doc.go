// Package server is the controller's HTTP interface: what draws how much now, what was used, what was decided and
// why, and the two endpoints that other systems already speak. docs/reference/api.md describes it.
//
// All routes stand in one table (routes.go). From it come the mux, the OpenAPI document, the reference in
// docs/reference/api.md and the test that tries every route as a stranger. query.go reads every query, answer.go writes
// every answer, and failure.go every error. POST /ingest, which takes jobs, is in jobs.go and job_request.go; the
// batches of agents are package controller/intake's.
//
// # Invariants, and the tests that hold them
//
//   - Every route needs a caller with a valid token; package controller/access decides what they may see
//     (TestStrangersSeeNothing). A namespace's own routes show that namespace alone (TestTenant).
//   - A parameter that a route does not know is refused: a misspelt filter must not give all there is (TestFailures).
//   - What the code answers is what docs/reference/api.md and the OpenAPI document say (TestOpenAPI, TestReference).
//   - A joule of a sidecar is booked at most once (TestSidecarIsExact, TestSidecarCounters).
//   - Without TLS only loopback addresses are served (TestServePlain).
//
// # Failures
//
// A ledger that hangs takes a bounded number of places and answers 503 (TestSlowLedger). A panic ends one answer, and
// neither it nor an internal error tells the caller more than that (TestFailures). The data folder loses rows, counted,
// rather than to delay a booking (TestFolderNeverBlocks, TestFolderFails).
package server
