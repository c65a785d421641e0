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
	"strings"
	"time"
)

// Options say where the controller is, and with what to ask it.
type Options struct {
	URL       string // as https://kubenergy-controller.kubenergy-system.svc:9443
	TokenFile string // of a bearer token; read before each request. "": none
	CAFile    string // of certificates to trust; read before each request. "": the system's
	CertFile  string // of a client certificate and its key; read at each handshake. "": none
	KeyFile   string
	UserAgent string
	Timeout   time.Duration    // of a request; 0: 10 s
	Now       func() time.Time // nil: time.Now
	// Node is set where a node asks, perhaps from outside of the cluster: through the proxy that its environment names,
	// over HTTP/1, which costs it least, and without TLS where nothing is secret.
	Node bool

	Transport http.RoundTripper // in place of the network, for tests
}

const (
	timeout      = 10 * time.Second
	maxIdleConns = 2
	idleFor      = 90 * time.Second
	maxHeader    = 32 << 10
	maxToken     = 64 << 10
	maxCA        = 1 << 20
	maxError     = 200 // bytes of an answer's text that are told
	maxRefusal   = 64 << 10
)

// A Client asks the controller. It is used by one goroutine.
type Client struct {
	o      Options
	url    string
	client *http.Client
	ca     []byte // what the client trusts
}

// New checks the options. Files are read when they are needed: they may come later.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("the URL of the controller cannot be read") // what was given may hold a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("URL %q of the controller: want http or https, with a host", u.Redacted())
	case u.User != nil:
		return nil, errors.New("the URL of the controller holds a password: use a token file")
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, errors.New("a client certificate needs both its file and its key's")
	case u.Scheme == "http" && !loopback(u.Hostname()) && (!o.Node || o.TokenFile+o.CertFile+o.CAFile != ""):
		return nil, fmt.Errorf("URL %q of the controller needs https: http is for loopback addresses", u.Redacted())
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

// A Request is what is asked.
type Request struct {
	Method, Path string // Path is behind the client's URL, if that has none of its own
	Header       map[string]string
	Body         []byte
	Most         int64 // bytes of the body of an Answer
}

// An Answer is a response with status 2xx or 304.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	At     time.Time // when its header was there
}

// Refused is a response with any other status.
type Refused struct {
	Status int
	Header http.Header
	Text   string // its beginning, in one line
	Body   []byte // as much of it as is read
}

// Why there was no answer, besides those of the network.
var (
	ErrToken  = errors.New("reading the token")
	ErrTrust  = errors.New("reading the certificates to trust")
	ErrAnswer = errors.New("reading the answer of the controller")
)

func (e *Refused) Error() string {
	return fmt.Sprintf("the controller answered %d %s: %s", e.Status, http.StatusText(e.Status), e.Text)
}

// Do asks, and reads the whole answer. The error is a [*Refused] if the status is neither 2xx nor 304.
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
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // what there is of it
		text := strings.Join(strings.Fields(string(body[:min(len(body), maxError)])), " ")
		return nil, &Refused{a.Status, a.Header, strings.ToValidUTF8(text, "?"), body}
	}
	if a.Body, err = io.ReadAll(io.LimitReader(response.Body, r.Most+1)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if int64(len(a.Body)) > r.Most {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrAnswer, r.Most)
	}
	return a, nil
}

// connect makes a client that trusts what the file holds now.
func (c *Client) connect() error {
	if c.o.Transport != nil {
		return nil
	}
	var ca []byte
	if c.o.CAFile != "" {
		var err error
		if ca, err = readFile(c.o.CAFile, maxCA); err != nil {
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
			return fmt.Errorf("%w: %s holds none", ErrTrust, c.o.CAFile)
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
	transport := &http.Transport{ // without a proxy: the controller stands in the cluster
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

// newClient returns a client that follows no redirect: that would show the token to the server it names.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close ends connections that wait for the next request.
func (c *Client) Close() {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
}

func readToken(file string) (string, error) {
	data, err := readFile(file, maxToken)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrToken, err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%w: %s holds none", ErrToken, file)
	}
	return token, nil
}

func readFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is too large", name)
	}
	return data, err
}
