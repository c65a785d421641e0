// Package apiclient implements the client of the controller's API for long-running programs: agents, schedulers and
// members of a federation. CLI commands use cmdutil.ControllerClient, which connects through the API server.
//
// The client sends the token only over TLS and does not follow redirects. It reloads certificates and tokens,
// because both are rotated, and limits the size of everything that it reads.
package apiclient
