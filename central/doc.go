// Package central asks the central unit over HTTP, for what runs inside the scheduler.
//
// It trusts nobody more than it must: the token is shown over TLS only and never to whom a redirect or a proxy of the
// environment names, certificates and tokens are read anew because both are rotated, and all that is read has a bound.
package central
