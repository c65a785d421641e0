// Package apiclient is the client of the controller for programs that run as long as it does: agents, schedulers and
// members of a federation. Commands of the CLI use cmdutil.ControllerClient, which goes through the API server.
//
// It trusts no server more than it must: the token is shown over TLS only and never to a server that a redirect names,
// certificates and tokens are read anew because both are rotated, and all that is read has a bound.
package apiclient
