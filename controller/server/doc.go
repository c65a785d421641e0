// Package server is the central unit's HTTP interface: what draws how much now, what was used, what was decided and
// why, and the two endpoints that other systems already speak. docs/api.md describes it.
//
// All routes stand in one table (routes.go). From it come the mux, the OpenAPI document, the reference in docs/api.md
// and the test that tries every route as a stranger, so that none can be forgotten. Every route needs a caller who
// says who they are; package access decides what they may see.
package server
