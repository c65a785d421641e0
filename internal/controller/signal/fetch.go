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

// Bounds of a request.
const (
	tryTimeout   = 5 * time.Second  // of one try, its body included
	maxTries     = 3                // of one request
	firstBackoff = time.Second      // before the second try; doubled for each further one
	maxInPlace   = 30 * time.Second // a longer Retry-After ends the request, and the next poll obeys it
	idleTimeout  = 30 * time.Second // polls are minutes apart: a connection is kept for one poll only
)

// Reach is what may be dialled beyond the public internet over HTTPS.
type Reach struct {
	// Loopback also lets servers on this machine answer, in plain HTTP too. For tests with a fake provider.
	Loopback bool
	// Roots verify servers; nil: those of the system.
	Roots *x509.CertPool

	// For tests of this package.
	resolver *net.Resolver // nil: that of the system
	tweak    func(*fetcher)
}

// fetcher makes the requests of one source: bounded, counted, and only to where it may.
type fetcher struct {
	dial.Client

	plain   bool                        // http:// is allowed too
	keys    dial.KeyReader              // nil: there are none
	home    string                      // host that keys are for which name none
	reserve func(context.Context) error // called before every request, retries included; nil: no limit
	count   func(outcome string)        // called after every request; nil: none is counted
	pause   func(context.Context, time.Duration) bool
}

// request is what to get. Keys belong into key, header or secret, never into url, which appears in errors.
type request struct {
	url    string
	path   string // behind the URL
	query  url.Values
	header http.Header
	secret url.Values // more of the query, which is never shown
	accept string     // by default application/json

	key       string // name of the key file; "": the server wants none
	keyHeader string // by default Authorization
	scheme    string // before the key, with a space behind it
}

// newFetcher returns a fetcher that dials what reach and the source allow.
func newFetcher(reach Reach, private bool) *fetcher {
	return &fetcher{
		Client: dial.Client{HTTP: dial.NewClient(dial.Options{
			Policy:  dial.Policy{Private: private, Loopback: reach.Loopback},
			Timeout: tryTimeout, Idle: idleTimeout, Roots: reach.Roots, Resolver: reach.resolver,
		}), Timeout: tryTimeout, Now: time.Now},
		plain: private || reach.Loopback, pause: kube.Pause,
	}
}

// fetched asks, and reads what comes.
func fetched[T any](ctx context.Context, f *fetcher, r request, read func(body []byte) (T, error)) (T, error) {
	body, _, err := f.get(ctx, r)
	if err != nil {
		return *new(T), err
	}
	return read(body)
}

// get returns the body of a good answer and its header. It tries again where that may help, as long as it may ask.
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
				return nil, nil, cmp.Or(err, refused) // what the last try said, if there was one
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
			return nil, nil, err // rather than that we were stopped
		}
	}
}

// keyFor returns a key that is sent to a server in another way than as a header.
func (f *fetcher) keyFor(server, name string) (string, error) {
	target, err := f.target(request{url: server})
	if err != nil {
		return "", err
	}
	return f.Key(f.keys, name, target, f.home)
}

// target checks and completes the URL.
func (f *fetcher) target(r request) (*url.URL, error) {
	if r.path != "" {
		r.url = strings.TrimSuffix(r.url, "/") + r.path
	}
	u, err := url.Parse(r.url)
	switch {
	case err != nil || u.Host == "":
		// url.Error would show it
		return nil, dial.Refuse(dial.ReasonAddress, "the URL cannot be read: want https://host/path")
	case u.Scheme != "https" && (u.Scheme != "http" || !f.plain):
		return nil, dial.Refuse(dial.ReasonAddress, "%s: the scheme is %q: want https", u.Host, u.Scheme)
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

// once makes one request.
func (f *fetcher) once(ctx context.Context, u *url.URL, r request) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, dial.Refuse(dial.ReasonAddress, "the URL cannot be read: want https://host/path")
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

// backoff returns how long to wait before the next try, and whether there is to be one.
func backoff(err error, try int) (time.Duration, bool) {
	if err == nil || try >= maxTries {
		return 0, false
	}
	e, ok := errors.AsType[*dial.Error](err)
	if !ok || e.Reason != dial.ReasonHTTP && e.Reason != dial.ReasonRate {
		return 0, false
	}
	if e.Wait > maxInPlace || e.Status != 0 && e.Status < 500 && e.Status != http.StatusTooManyRequests {
		return 0, false // too long, or the same question gets the same answer
	}
	full := firstBackoff << (try - 1)
	return max(e.Wait, full/2+rand.N(full/2)), true
}

// outcome is the label of a request's counter.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return string(dial.ReasonOf(err))
}
