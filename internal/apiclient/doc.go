// Package apiclient asks the controller over HTTP: it is the client of agents and of what runs inside the scheduler.
// daemon.Limit is what both sides serve with.
//
// It trusts no server more than it must: the token is shown over TLS only and never to a server that a redirect names,
// certificates and tokens are read anew because both are rotated, and all that is read has a bound.
package apiclient
