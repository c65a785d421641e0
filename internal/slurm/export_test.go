package slurm

import "net/http"

// Grace exports grace for tests.
const Grace = grace

// SetTransport replaces the transport of a client.
func (c *Client) SetTransport(t http.RoundTripper) { c.http.Transport = t }

// Limits and timeouts for tests.
const (
	MaxEntries = maxEntries
	Timeout    = timeout
	Changing   = changing
)

// CheckURL exports checkURL for tests.
func (c *Client) CheckURL() error { return c.checkURL() }

// AskOnce makes [Driver.Account] return immediately if a job is unknown.
func (d *Driver) AskOnce() { d.accounts.timeout = 0 }
