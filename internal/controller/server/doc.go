// Package server implements the HTTP interface of the controller: current power, energy usage, scheduling decisions
// and their reasons, and two endpoints that are compatible with existing clients. It is documented in
// docs/reference/api.md.
//
// routes.go contains the table of all routes. The mux, the OpenAPI document, the reference in docs/reference/api.md
// and the test that requests every route without permissions are all generated from it. query.go parses all
// queries, answer.go writes all responses, and failure.go writes all errors. jobs.go and job_request.go implement
// POST /ingest, which accepts jobs. Batches of agents are handled by package controller/intake.
//
// # Invariants and their tests
//
//   - Every route requires a caller with a valid token. Package controller/access decides what the caller may see
//     (TestStrangersSeeNothing). The routes of a namespace return data of this namespace only (TestTenant).
//   - A request with an unknown query parameter is rejected, so that a misspelled filter does not return unfiltered
//     data (TestFailures).
//   - Responses match docs/reference/api.md and the OpenAPI document (TestOpenAPI, TestReference).
//   - Energy reported by a sidecar is recorded at most once (TestSidecarIsExact, TestSidecarCounters).
//   - Without TLS, the server listens on loopback addresses only (TestServePlain).
//
// # Failures
//
// If the ledger hangs, the number of concurrent queries stays bounded and requests time out with status 503
// (TestSlowLedger). A panic aborts a single response, and the details of panics and internal errors are not sent to
// the client (TestFailures). The data folder drops rows and counts them instead of delaying a booking
// (TestFolderNeverBlocks, TestFolderFails).
package server
