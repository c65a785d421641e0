package signal

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// Limits of a request.
const (
	tryTimeout   = 5 * time.Second  // per attempt, including its body
	maxTries     = 3                // attempts per request
	firstBackoff = time.Second      // delay before the second attempt, doubled for each further one
	maxInPlace   = 30 * time.Second // a longer Retry-After delays the next poll instead
	idleTimeout  = 30 * time.Second // connections are reused within a poll only, because polls are minutes apart
)

// Reach configures allowed addresses in addition to the public internet over HTTPS.
type Reach struct {
	// Loopback allows loopback addresses, also with plain HTTP. It is used in tests with a fake provider.
	Loopback bool
	// Roots are the certificate authorities of servers. It defaults to those of the system.
	Roots *x509.CertPool

	// For testing only.
	resolver *net.Resolver // defaults to the resolver of the system
	tweak    func(*fetcher)
}

// fetcher sends the requests of a source. It enforces limits and allowed addresses and counts requests.
type fetcher struct {
	dial.Client

	plain   bool                        // whether plain HTTP is allowed
	keys    dial.KeyReader              // nil if there are no keys
	home    string                      // host that may receive keys without a list of hosts
	reserve func(context.Context) error // called before every attempt; nil disables the limit
	count   func(outcome string)        // called after every attempt; may be nil
	pause   func(context.Context, time.Duration) bool
}

// request describes a GET request. Keys must be passed in key, header or secret. They must not be part of url,
// because errors contain it.
type request struct {
	url    string
	path   string // appended to url
	query  url.Values
	header http.Header
	secret url.Values // additional query parameters that must not appear in errors
	accept string     // defaults to application/json

	key       string // name of the key file; empty if no key is needed
	keyHeader string // defaults to Authorization
	scheme    string // prefix of the key, including a trailing space
}

// newFetcher returns a fetcher that is limited to addresses allowed by reach. If private is set, private addresses
// are allowed too.
func newFetcher(reach Reach, private bool) *fetcher {
	return &fetcher{
		Client: dial.Client{HTTP: dial.NewClient(dial.Options{
			Policy:  dial.Policy{Private: private, Loopback: reach.Loopback},
			Timeout: tryTimeout, Idle: idleTimeout, Roots: reach.Roots, Resolver: reach.resolver,
		}), Timeout: tryTimeout, Now: time.Now},
		plain: private || reach.Loopback, pause: kube.Pause,
	}
}

// fetched sends a request and decodes the response body with read.
func fetched[T any](ctx context.Context, f *fetcher, r request, read func(body []byte) (T, error)) (T, error) {
	body, _, err := f.get(ctx, r)
	if err != nil {
		return *new(T), err
	}
	return read(body)
}

// get returns the body and the header of a successful response. It retries transient failures within the limit of
// requests.
func (f *fetcher) get(ctx context.Context, r request) (body []byte, header http.Header, err error) {
	target, err := f.target(r)
	if err != nil {
		return nil, nil, err
	}
	if r.key != "" {
		key, err := f.Key(f.keys, r.key, target, f.home)
		if err != nil {
			return nil, nil, err
		}
		r.header = http.Header{}
		r.header.Set(cmp.Or(r.keyHeader, "Authorization"), r.scheme+key)
	}
	for _, sent := range []map[string][]string{r.secret, r.header} {
		for _, values := range sent {
			f.Secrets.Hide(values...)
		}
	}
	for try := 1; ; try++ {
		if f.reserve != nil {
			if refused := f.reserve(ctx); refused != nil {
				return nil, nil, cmp.Or(err, refused) // prefer the error of the last attempt
			}
		}
		body, header, err = f.once(ctx, target, r)
		if f.count != nil {
			f.count(outcome(err))
		}
		wait, again := backoff(err, try)
		if !again || ctx.Err() != nil {
			return body, header, err
		}
		if !f.pause(ctx, wait) {
			return nil, nil, err // more useful than the cancellation
		}
	}
}

// keyFor returns a key for servers that do not accept it in a header.
func (f *fetcher) keyFor(server, name string) (string, error) {
	target, err := f.target(request{url: server})
	if err != nil {
		return "", err
	}
	return f.Key(f.keys, name, target, f.home)
}

// target validates the URL of a request and adds its path and query.
func (f *fetcher) target(r request) (*url.URL, error) {
	if r.path != "" {
		r.url = strings.TrimSuffix(r.url, "/") + r.path
	}
	u, err := url.Parse(r.url)
	switch {
	case err != nil || u.Host == "":
		// url.Error is not wrapped because it contains the URL.
		return nil, dial.Refuse(dial.ReasonAddress, "the URL is invalid: want https://host/path")
	case u.Scheme != "https" && (u.Scheme != "http" || !f.plain):
		return nil, dial.Refuse(dial.ReasonAddress, "%s: the scheme is %q, want https", u.Host, u.Scheme)
	}
	if len(r.query)+len(r.secret) == 0 {
		return u, nil
	}
	q := u.Query()
	for _, more := range []url.Values{r.query, r.secret} {
		maps.Copy(q, more)
	}
	u.RawQuery = q.Encode()
	return u, nil
}

// once sends a single attempt of a request.
func (f *fetcher) once(ctx context.Context, u *url.URL, r request) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, dial.Refuse(dial.ReasonAddress, "the URL is invalid: want https://host/path")
	}
	if r.header != nil {
		req.Header = r.header.Clone()
	}
	req.Header.Set("Accept", cmp.Or(r.accept, "application/json"))
	body, resp, err := f.Exchange(ctx, req)
	if e, ok := errors.AsType[*dial.Error](err); ok && e.Status == http.StatusTooManyRequests {
		e.Reason = dial.ReasonRate
	}
	if err != nil {
		return nil, nil, err
	}
	return body, resp.Header, nil
}

// backoff returns the delay before the next attempt and whether to retry.
func backoff(err error, try int) (time.Duration, bool) {
	if err == nil || try >= maxTries {
		return 0, false
	}
	e, ok := errors.AsType[*dial.Error](err)
	if !ok || e.Reason != dial.ReasonHTTP && e.Reason != dial.ReasonRate {
		return 0, false
	}
	if e.Wait > maxInPlace || e.Status != 0 && e.Status < 500 && e.Status != http.StatusTooManyRequests {
		return 0, false // the delay is too long, or a retry would fail again
	}
	full := firstBackoff << (try - 1)
	return max(e.Wait, full/2+rand.N(full/2)), true
}

// outcome returns the label value of a request in the metrics.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return string(dial.ReasonOf(err))
}
