package apiclient

import (
	"bytes"
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
	"os"
	"strconv"
	"strings"
	"time"
)

// Options configures a Client.
type Options struct {
	URL       string // e.g. https://kubenergy-controller.kubenergy-system.svc:9443
	TokenFile string // bearer token, read before each request; none if empty
	CAFile    string // CA certificates, read before each request; defaults to the system's
	CertFile  string // client certificate, read at each TLS handshake with KeyFile; none if empty
	KeyFile   string
	UserAgent string
	Timeout   time.Duration    // timeout of a request; defaults to 10 s
	Now       func() time.Time // defaults to time.Now
	// Node configures the client for a node, possibly outside the cluster: it uses the proxy from the environment
	// and HTTP/1 to reduce the load on the node, and permits http URLs if no credentials are configured.
	Node bool

	Transport http.RoundTripper // replaces the network, for testing only
}

const (
	timeout      = 10 * time.Second
	maxIdleConns = 2
	idleFor      = 90 * time.Second
	maxHeader    = 32 << 10
	maxToken     = 64 << 10
	maxCA        = 1 << 20
	maxError     = 200 // in bytes of the response body included in errors
	maxRefusal   = 64 << 10
)

// A Client sends requests to the controller. It must not be used concurrently.
type Client struct {
	o      Options
	url    string
	client *http.Client
	ca     []byte // PEM data that client trusts
}

// New validates the options and returns a Client. Files are read with each request and may be created later.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("the URL of the controller is invalid") // the parse error may contain a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("URL %q of the controller: want http or https and a host", u.Redacted())
	case u.User != nil:
		return nil, errors.New("the URL of the controller contains a password: use a token file")
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, errors.New("a client certificate requires both a certificate file and a key file")
	case u.Scheme == "http" && !loopback(u.Hostname()) && (!o.Node || o.TokenFile+o.CertFile+o.CAFile != ""):
		return nil, fmt.Errorf("URL %q of the controller: http is for loopback addresses, use https", u.Redacted())
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Timeout = cmp.Or(o.Timeout, timeout)
	c := &Client{o: o, url: u.String()}
	if o.Transport != nil {
		c.client = newClient(o.Transport)
	}
	return c, nil
}

func loopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// A Request is a request to the controller.
type Request struct {
	Method, Path string // Path is appended to the URL of the client
	Header       map[string]string
	Body         []byte
	Most         int64 // maximum size of the response body in bytes
}

// An Answer is a response with status 2xx or 304.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	At     time.Time // time at which the response header was received
}

// Refused is the error for a response with any other status.
type Refused struct {
	Status int
	Header http.Header
	Text   string // start of the body in a single line
	Body   []byte // possibly truncated
}

// RetryAfter parses the Retry-After header of a response, which contains either seconds or a date, and limits it to
// most. It returns 0 if there is none.
func RetryAfter(h http.Header, now time.Time, most time.Duration) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, most)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), most)
	}
	return 0
}

// Errors of requests, in addition to network errors.
var (
	ErrToken  = errors.New("reading the token")
	ErrTrust  = errors.New("reading the CA certificates")
	ErrAnswer = errors.New("reading the response of the controller")
)

func (e *Refused) Error() string {
	return fmt.Sprintf("the controller responded with %d %s: %s", e.Status, http.StatusText(e.Status), e.Text)
}

// Do sends a request and reads the whole response. It returns a [*Refused] error if the status is neither 2xx nor
// 304.
func (c *Client) Do(ctx context.Context, r *Request) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	address := c.url
	if r.Path != "" {
		address = strings.TrimRight(address, "/") + r.Path
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, address, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range r.Header {
		request.Header.Set(name, value)
	}
	request.Header.Set("User-Agent", c.o.UserAgent)
	if c.o.TokenFile != "" {
		token, err := readToken(c.o.TokenFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	a := &Answer{Status: response.StatusCode, Header: response.Header, At: c.o.Now()}
	switch {
	case a.Status == http.StatusNotModified:
		return a, nil
	case a.Status < http.StatusOK || a.Status >= http.StatusMultipleChoices:
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // best effort
		text := strings.Join(strings.Fields(string(body[:min(len(body), maxError)])), " ")
		return nil, &Refused{a.Status, a.Header, strings.ToValidUTF8(text, "?"), body}
	}
	if a.Body, err = io.ReadAll(io.LimitReader(response.Body, r.Most+1)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if int64(len(a.Body)) > r.Most {
		return nil, fmt.Errorf("%w: it is larger than %d bytes", ErrAnswer, r.Most)
	}
	return a, nil
}

// connect creates a new HTTP client if the CA file has changed.
func (c *Client) connect() error {
	if c.o.Transport != nil {
		return nil
	}
	var ca []byte
	if c.o.CAFile != "" {
		var err error
		if ca, err = ReadFile(c.o.CAFile, maxCA); err != nil {
			return fmt.Errorf("%w: %w", ErrTrust, err)
		}
	}
	if c.client != nil && bytes.Equal(ca, c.ca) {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.o.CAFile != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return fmt.Errorf("%w: no certificate in %s", ErrTrust, c.o.CAFile)
		}
	}
	if c.o.CertFile != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(c.o.CertFile, c.o.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("reading the client certificate: %w", err)
			}
			return &certificate, nil
		}
	}
	transport := &http.Transport{ // no proxy by default, because the controller is in the cluster
		TLSClientConfig: config, TLSHandshakeTimeout: c.o.Timeout, ForceAttemptHTTP2: !c.o.Node,
		MaxIdleConns: maxIdleConns, IdleConnTimeout: idleFor, MaxResponseHeaderBytes: maxHeader,
	}
	if c.o.Node {
		transport.Proxy = http.ProxyFromEnvironment
	}
	c.Close()
	c.client, c.ca = newClient(transport), ca
	return nil
}

// newClient returns an HTTP client that does not follow redirects, because it would send the token to another
// server.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes idle connections.
func (c *Client) Close() {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
}

func readToken(file string) (string, error) {
	data, err := ReadFile(file, maxToken)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrToken, err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%w: no valid token in %s", ErrToken, file)
	}
	return token, nil
}

// ReadFile reads a regular file of at most the given size in bytes. Pipes could block, and devices could be infinite.
func ReadFile(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s: want a regular file of at most %d bytes", name, most)
	}
	return os.ReadFile(name)
}
