package slurm

import "net/http"

// Grace is for tests.
const Grace = grace

// SetTransport has a client send its requests through t.
func (c *Client) SetTransport(t http.RoundTripper) { c.http.Transport = t }

// Limits of answers and lists, for tests.
const (
	MaxEntries = maxEntries
	Timeout    = timeout
	Changing   = changing
)

// CheckURL is for tests.
func (c *Client) CheckURL() error { return c.checkURL() }

// AskOnce has [Driver.Account] return at once if a job is not known.
func (d *Driver) AskOnce() { d.accounts.timeout = 0 }
