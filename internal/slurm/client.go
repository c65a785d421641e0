package slurm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// ClientOptions contains the address and the credentials of slurmrestd.
type ClientOptions struct {
	URL       string // http://HOST:PORT, or unix:PATH for a local socket, which authenticates its clients itself
	TokenFile string // file with a JWT; read for each request because tokens are rotated
}

// Client is a client of slurmrestd. It uses the latest version of the API that both support.
type Client struct {
	o       ClientOptions
	base    string
	http    *http.Client
	version *version // nil before the version has been negotiated
}

const timeout = 20 * time.Second

// NewClient validates the options and returns a client. It does not send any requests.
func NewClient(o ClientOptions) (*Client, error) {
	transport := &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute}
	c := &Client{o: o, base: strings.TrimSuffix(o.URL, "/"), http: &http.Client{
		Timeout: timeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	socket, local := strings.CutPrefix(o.URL, "unix:")
	switch {
	case local:
		c.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	case !strings.HasPrefix(o.URL, "http://") && !strings.HasPrefix(o.URL, "https://"):
		return nil, fmt.Errorf("--slurm-url is %q: want http://HOST:PORT or unix:PATH of a socket", o.URL)
	case o.TokenFile == "":
		return nil, errors.New("--slurm-token-file is missing: only a socket does not require it; create a token " +
			"with scontrol token username=kubenergy")
	}
	return c, nil
}

// Trouble is an error of a request to slurmrestd. Its message contains advice for the operator.
type Trouble struct {
	Kind string // reason in the metrics
	Err  error
	mute bool // the response has no error number
}

// Error implements error.
func (t *Trouble) Error() string { return t.Err.Error() }

// Unwrap returns the cause.
func (t *Trouble) Unwrap() error { return t.Err }

func newFault(kind, format string, args ...any) error {
	return &Trouble{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// Kinds of errors.
const (
	away      = "away"
	slow      = "slow"
	forbidden = "forbidden"
	unknown   = "version"
	refused   = "refused"
	garbled   = "answer"
	NoState   = "state" // returned by [Options.Seen] if its state file cannot be read or written
)

// Version returns the negotiated version of the API. It is empty before the first response.
func (c *Client) Version() string {
	if c.version == nil {
		return ""
	}
	return c.version.name
}

// Jobs returns all jobs of slurmctld.
func (c *Client) Jobs(ctx context.Context) (jobs []Job, err error) {
	err = c.ask(ctx, http.MethodGet, "jobs", nil, map[string]any{"jobs": listOf("jobs", &jobs, (*Job).size)})
	return jobs, err
}

// Nodes returns all nodes.
func (c *Client) Nodes(ctx context.Context) (nodes []Node, err error) {
	err = c.ask(ctx, http.MethodGet, "nodes", nil, map[string]any{"nodes": listOf("nodes", &nodes, (*Node).size)})
	return nodes, err
}

// Unreachable reports whether an error means that slurmrestd does not respond. Further requests would also time
// out.
func Unreachable(err error) bool { return isKind(err, away) || isKind(err, slow) }

// checkURL returns an error if tokens are sent unencrypted over a network.
func (c *Client) checkURL() error {
	u, err := url.Parse(c.base)
	if err != nil || u.Scheme != "http" || u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback() {
		return err
	}
	return fmt.Errorf("--slurm-url is %s: the token is sent unencrypted, and anyone who reads it can change all jobs; "+
		"use a socket, a loopback address, or a proxy with https in front of slurmrestd", c.o.URL)
}

// ask sends a request with the negotiated version of the API.
func (c *Client) ask(ctx context.Context, method, what string, body any, into map[string]any) error {
	if err := c.negotiate(ctx); err != nil {
		return err
	}
	path := "/slurm/" + c.version.name + "/" + what
	if method == http.MethodGet {
		path += c.version.slash
	}
	err := c.do(ctx, method, path, body, into)
	if isKind(err, unknown) { // slurmrestd may have been replaced by another version
		c.version = nil
	}
	return err
}

// negotiate determines the latest version that slurmrestd supports. It also verifies that slurmctld responds.
func (c *Client) negotiate(ctx context.Context) error {
	if c.version != nil {
		return nil
	}
	var names []string
	for i := range versions {
		v := &versions[i]
		err := c.do(ctx, http.MethodGet, "/slurm/"+v.name+"/ping"+v.slash, nil, nil)
		if err == nil {
			c.version = v
			return nil
		}
		if names = append(names, v.name); !isKind(err, unknown) {
			return err
		}
	}
	return newFault(unknown, "slurmrestd at %s supports none of %s: start it with one of them, e.g. slurmrestd -s "+
		"openapi/slurmctld -d %s; Slurm 24.11 and later have one", c.o.URL, strings.Join(names, ", "), names[0])
}

func isKind(err error, kind string) bool {
	t, ok := errors.AsType[*Trouble](err)
	return ok && t.Kind == kind
}

func (c *Client) do(ctx context.Context, method, path string, body any, into map[string]any) error {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, &text)
	if err != nil {
		return fmt.Errorf("--slurm-url: %w", err)
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if err := c.sign(r); err != nil {
		return err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return c.unanswered(err)
	}
	defer answer.Body.Close()
	var errs []said
	fields := map[string]any{"errors": &errs}
	maps.Copy(fields, into)
	start, err := readAnswer(answer.Body, fields)
	if _, broken := errors.AsType[net.Error](err); broken {
		return c.unanswered(err)
	}
	if failed := c.failure(answer.StatusCode, errs, start); failed != nil {
		return failed
	}
	if err != nil {
		return newFault(garbled, "decoding the response of slurmrestd at %s to %s: %w", c.o.URL, path, err)
	}
	return nil
}

// sign adds the token to a request, and the user name, which old versions require.
func (c *Client) sign(r *http.Request) error {
	if c.o.TokenFile == "" {
		return nil
	}
	text, err := os.ReadFile(c.o.TokenFile)
	if err != nil {
		return newFault(forbidden, "--slurm-token-file: %w", err)
	}
	token := strings.TrimPrefix(strings.TrimSpace(string(text)), "SLURM_JWT=") // output format of scontrol
	parts := strings.Split(token, ".")
	var claims struct {
		Sun string // user name in Slurm
		Exp float64
	}
	const of = 3 // header, claims, signature
	if len(parts) == of {
		payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
		_ = json.Unmarshal(payload, &claims) // slurmrestd rejects invalid tokens
	}
	if expiry := time.Unix(int64(claims.Exp), 0); claims.Exp > 0 && time.Now().After(expiry) {
		return newFault(forbidden, "the token in --slurm-token-file expired at %s: replace it",
			expiry.UTC().Format(time.RFC3339))
	}
	r.Header.Set("X-SLURM-USER-TOKEN", token)
	if claims.Sun != "" {
		r.Header.Set("X-SLURM-USER-NAME", claims.Sun)
	}
	return nil
}

// unanswered converts an error of a request without a response.
func (c *Client) unanswered(err error) error {
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		return newFault(slow,
			"slurmrestd at %s has not responded within %v: jobs are not delayed; check its load "+
				"and the load of slurmctld", c.o.URL, timeout)
	}
	return newFault(away, "slurmrestd at %s does not respond: jobs are not delayed; check whether it is running: %w",
		c.o.URL, err)
}

// said is an error in a response of slurmrestd.
type said struct {
	Description, Error, Source string
	Number                     *int64 `json:"error_number"`
}

// Error numbers of Slurm for missing permissions.
const (
	accessDenied = 2002
	notOwner     = 2010 // for accounts without AdminLevel
	unspecified  = -1   // from slurmctld through old versions of slurmrestd
)

// failure returns the error in a response, or nil if it reports success.
func (c *Client) failure(status int, errs []said, start []byte) error {
	var text string
	mute := status < http.StatusMultipleChoices
	denied := status == http.StatusUnauthorized || status == http.StatusForbidden
	for _, e := range errs {
		text = strings.TrimPrefix(text+"; "+strings.Trim(e.Error+": "+e.Description, ": "), "; ")
		if e.Number == nil {
			continue
		}
		denied, mute = denied || *e.Number == accessDenied || *e.Number == notOwner, false
		if *e.Number == unspecified {
			text += "; slurmctld does not respond to slurmrestd or rejects the token: check both"
		}
	}
	text = cmp.Or(text, strings.ToValidUTF8(string(start), "?"))
	switch {
	case denied:
		return newFault(forbidden,
			"slurmrestd at %s rejected the account (%s): --slurm-token-file needs a valid token "+
				"of an account with sacctmgr modify user NAME set adminlevel=operator", c.o.URL, text)
	case status == http.StatusNotFound:
		return newFault(unknown, "slurmrestd at %s does not support this path", c.o.URL)
	case len(errs) > 0 || status >= http.StatusMultipleChoices:
		return &Trouble{refused, fmt.Errorf("slurmrestd at %s returned status %d: %s", c.o.URL, status, text), mute}
	}
	return nil
}
