package dial

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// MaxBody is the maximum size of a response body in bytes.
const MaxBody = 1 << 20

const maxHeader = 64 << 10

// Options configures a client.
type Options struct {
	Policy  Policy
	Timeout time.Duration  // timeout for connecting and for the TLS handshake
	Idle    time.Duration  // idle connection timeout
	Roots   *x509.CertPool // root CAs; nil for the system's
	// Resolver resolves host names. If nil, the system resolver is used.
	Resolver *net.Resolver
}

// NewClient returns a client for a single server with at most one idle connection. It has no timeout for a whole
// request, so callers must use a context with a deadline. URLs with the http scheme are limited to non-public
// addresses.
func NewClient(o Options) *http.Client {
	plain := o
	plain.Policy.plain = true
	return &http.Client{
		Transport: byScheme{o.transport(), plain.transport()},
		// A redirect could send the key to a server that was not configured, and each hop would be an additional
		// request that is not rate limited.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type byScheme struct{ https, http *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (t byScheme) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" {
		return t.http.RoundTrip(r)
	}
	return t.https.RoundTrip(r)
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t byScheme) CloseIdleConnections() {
	t.https.CloseIdleConnections()
	t.http.CloseIdleConnections()
}

func (o Options) transport() *http.Transport {
	dialer := &net.Dialer{Timeout: o.Timeout, Control: o.Policy.Control, Resolver: o.Resolver}
	// Do not use a proxy from the environment, because the dialer would check the address of the proxy instead of
	// the server's.
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
		TLSHandshakeTimeout:    o.Timeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           1,
		IdleConnTimeout:        o.Idle,
		MaxResponseHeaderBytes: maxHeader,
	}
}

// ErrTooLong is returned for a response body larger than MaxBody.
var ErrTooLong = fmt.Errorf("the response is larger than %d bytes", MaxBody)

// Body reads the decompressed body of a response. It returns ErrTooLong if the body is larger than MaxBody.
func Body(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	if err == nil && len(body) > MaxBody {
		return nil, ErrTooLong
	}
	return body, err
}

// Redirect returns the scheme and host of a redirect's target. The path and query are omitted because they may
// contain secrets. It returns false if the response is not a redirect.
func Redirect(resp *http.Response) (to string, ok bool) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
	default:
		return "", false
	}
	location, err := resp.Location()
	if err != nil {
		return "an invalid URL", true
	}
	return location.Scheme + "://" + location.Host, true
}

// Names reports whether text identifies the server of a URL, either as a host with the default port of the scheme
// or as host:port. Other ports of the host do not match, because they may belong to other services.
func Names(text string, u *url.URL) bool {
	usual := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	name, port := u.Hostname(), cmp.Or(u.Port(), usual)
	return strings.EqualFold(text, net.JoinHostPort(name, port)) ||
		port == usual && strings.EqualFold(strings.Trim(text, "[]"), name)
}

// Place returns the host and path of a URL without the parts that may contain secrets.
func Place(u *url.URL) string { return u.Host + u.Path }

// Cause returns the message of a client error without the URL, which may contain secrets, and without port numbers,
// which differ between attempts. The message may still contain text from the server.
func Cause(err error, timeout time.Duration) string {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Error()
	}
	late := errors.Is(err, context.DeadlineExceeded)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if wrapped, ok := errors.AsType[*net.OpError](err); ok {
		err = wrapped.Err
	}
	text := err.Error()
	switch {
	case late:
		return "no response within " + timeout.String()
	case strings.HasPrefix(text, "failed to parse Location"):
		return "redirected to an invalid URL" // the error contains the invalid URL
	}
	return text
}
