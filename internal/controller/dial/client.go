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

// MaxBody is the most that is read of an answer.
const MaxBody = 1 << 20

const maxHeader = 64 << 10

// Options are those of a client.
type Options struct {
	Policy  Policy
	Timeout time.Duration  // of connecting, and of TLS
	Idle    time.Duration  // for how long an unused connection is kept
	Roots   *x509.CertPool // verify servers; nil: those of the system
	// Resolver resolves names; nil: that of the system.
	Resolver *net.Resolver
}

// NewClient returns a client of one server: it keeps at most one unused connection. It has no timeout for a
// whole request: contexts have. Without TLS it dials addresses of inside alone.
func NewClient(o Options) *http.Client {
	plain := o
	plain.Policy.plain = true
	return &http.Client{
		Transport: byScheme{o.transport(), plain.transport()},
		// A redirect would take the key to a server that was not configured, and each hop would be a request beyond the
		// limit.
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

// CloseIdleConnections is what [http.Client.CloseIdleConnections] calls.
func (t byScheme) CloseIdleConnections() {
	t.https.CloseIdleConnections()
	t.http.CloseIdleConnections()
}

func (o Options) transport() *http.Transport {
	dialer := &net.Dialer{Timeout: o.Timeout, Control: o.Policy.Control, Resolver: o.Resolver}
	// No proxy from the environment: behind one, the check of the address would see the proxy's.
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

// ErrTooLong is an answer that is longer than any honest one.
var ErrTooLong = fmt.Errorf("the answer is longer than %d bytes", MaxBody)

// Body reads the body of an answer, unpacked, up to MaxBody.
func Body(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	if err == nil && len(body) > MaxBody {
		return nil, ErrTooLong
	}
	return body, err
}

// Redirect returns where an answer leads, without what may be secret there, if it is a redirect.
func Redirect(resp *http.Response) (to string, ok bool) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
	default:
		return "", false
	}
	location, err := resp.Location()
	if err != nil {
		return "elsewhere", true
	}
	return location.Scheme + "://" + location.Host, true
}

// Names reports whether a text names the server of a URL: a host, for the usual port of its scheme, or host:port.
// Authors of URLs must not reach other ports of a host.
func Names(text string, u *url.URL) bool {
	usual := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	name, port := u.Hostname(), cmp.Or(u.Port(), usual)
	return strings.EqualFold(text, net.JoinHostPort(name, port)) ||
		port == usual && strings.EqualFold(strings.Trim(text, "[]"), name)
}

// Place names a server and a path, without what may be secret.
func Place(u *url.URL) string { return u.Host + u.Path }

// Cause returns what an error of a client says without the URL, which may have secrets in it, and without ports,
// which differ each time. What others wrote may still stand in it.
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
		return "no answer within " + timeout.String()
	case strings.HasPrefix(text, "failed to parse Location"):
		return "redirected to a URL that cannot be read" // which has what the server made of ours
	}
	return text
}
