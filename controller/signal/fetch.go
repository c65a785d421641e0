package signal

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/controller/dial"
)

// Bounds of a request.
const (
	tryTimeout   = 5 * time.Second  // of one try, its body included
	maxTries     = 3                // of one request
	firstBackoff = time.Second      // before the second try; doubled for each further one
	maxInPlace   = 30 * time.Second // a longer Retry-After ends the request, and the next poll obeys it
	maxWait      = time.Hour        // of Retry-After: a provider cannot silence itself for longer
	idleTimeout  = 30 * time.Second // polls are minutes apart: a connection is kept for one poll only
	userAgent    = "kubenergy"
)

// KeyReader returns the content of a key file, without the space around it.
type KeyReader interface {
	Key(name string) (string, error)
}

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
	client  *http.Client
	plain   bool                        // http:// is allowed too
	keys    KeyReader                   // nil: there are none
	reserve func(context.Context) error // called before every request, retries included; nil: no limit
	count   func(outcome string)        // called after every request; nil: nobody counts
	now     func() time.Time            // for dates in Retry-After
	sleep   func(context.Context, time.Duration) error
	timeout time.Duration // of one try
	secrets dial.Secrets  // keys that were sent or read
}

// request is what to get. Keys belong into header or secret, never into url, which appears in errors.
type request struct {
	url    string
	query  url.Values
	header http.Header
	secret url.Values // more of the query, which is never shown
	accept string     // by default application/json
}

// newFetcher returns a fetcher that dials what reach and the source allow.
func newFetcher(reach Reach, private bool) *fetcher {
	return &fetcher{
		client: dial.NewClient(dial.Options{
			Policy:  dial.Policy{Private: private, Loopback: reach.Loopback},
			Timeout: tryTimeout, Idle: idleTimeout, Roots: reach.Roots, Resolver: reach.resolver,
		}),
		plain:   private || reach.Loopback,
		now:     time.Now,
		sleep:   sleep,
		timeout: tryTimeout,
	}
}

// key returns the content of a key file.
func (f *fetcher) key(name string) (string, error) {
	if f.keys == nil {
		return "", refuse(ReasonAuth, "key %q: this controller has no keys", name)
	}
	key, err := f.keys.Key(name)
	if err != nil {
		return "", refuse(ReasonAuth, "reading key %q: %w", name, err)
	}
	if key = strings.TrimSpace(key); key == "" {
		return "", refuse(ReasonAuth, "key %q is empty", name)
	}
	f.secrets.Hide(key)
	return key, nil
}

// get returns the body of a good answer and its header. It tries again where that may help, as long as it may ask.
func (f *fetcher) get(ctx context.Context, r request) (body []byte, header http.Header, err error) {
	target, err := f.target(r)
	if err != nil {
		return nil, nil, err
	}
	for _, sent := range []map[string][]string{r.secret, r.header} {
		for _, values := range sent {
			f.secrets.Hide(values...)
		}
	}
	for try := 1; ; try++ {
		if f.reserve != nil {
			if refused := f.reserve(ctx); refused != nil {
				if err == nil {
					err = refused
				}
				return nil, nil, err // what the last try said, if there was one
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
		if f.sleep(ctx, wait) != nil {
			return nil, nil, err // rather than that we were stopped
		}
	}
}

// target checks and completes the URL.
func (f *fetcher) target(r request) (*url.URL, error) {
	u, err := url.Parse(r.url)
	switch {
	case err != nil || u.Host == "":
		return nil, refuse(ReasonAddress, "the URL cannot be read: want https://host/path") // url.Error would show it
	case u.Scheme != "https" && (u.Scheme != "http" || !f.plain):
		return nil, refuse(ReasonAddress, "%s: the scheme is %q: want https", u.Host, u.Scheme)
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
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, refuse(ReasonAddress, "the URL cannot be read: want https://host/path")
	}
	if r.header != nil {
		req.Header = r.header.Clone()
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", "application/json")
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, nil, f.failed(u, err)
	}
	defer resp.Body.Close()
	if err := f.status(u, resp); err != nil {
		return nil, nil, err
	}
	body, err := dial.Body(resp)
	switch {
	case errors.Is(err, dial.ErrTooLong):
		return nil, nil, refuse(ReasonSize, "%s: %w", dial.Place(u), err)
	case err != nil:
		return nil, nil, f.failed(u, err)
	}
	return body, resp.Header, nil
}

// status turns a status other than 200 into an error.
func (f *fetcher) status(u *url.URL, resp *http.Response) error {
	err := &Error{
		Reason: ReasonHTTP, Err: &statusError{dial.Place(u), resp.StatusCode}, Wait: retryAfter(resp.Header, f.now()),
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		err.Reason = ReasonAuth
	case http.StatusTooManyRequests:
		err.Reason = ReasonRate
	}
	if to, ok := dial.Redirect(resp); ok {
		return refuse(ReasonAddress, "%s redirects to %.80s: redirects are not followed", dial.Place(u),
			f.secrets.Conceal(to))
	}
	return err
}

// statusError is an answer with a status other than 200.
type statusError struct {
	place string
	code  int
}

// Error says what the server answered.
func (e *statusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%s answered %d %s", e.place, e.code, http.StatusText(e.code)))
}

// hasStatus reports whether err is an answer with this status.
func hasStatus(err error, code int) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.code == code
}

// failed describes an error on the way. Its text is made anew: net/http's has the whole URL in it, keys included.
func (f *fetcher) failed(u *url.URL, err error) error {
	text, reason := f.secrets.Conceal(dial.Cause(err, f.timeout)), ReasonHTTP
	if refused, ok := errors.AsType[*dial.RefusedError](err); ok {
		reason = ReasonAddress
		if refused.Private {
			text += ", and the source does not say allowPrivateAddress"
		}
	}
	return &Error{Reason: reason, Err: fmt.Errorf("%s: %.200s", dial.Place(u), text)}
}

// backoff returns how long to wait before the next try, and whether there is to be one.
func backoff(err error, try int) (time.Duration, bool) {
	if err == nil || try >= maxTries {
		return 0, false
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != ReasonHTTP && e.Reason != ReasonRate {
		return 0, false
	}
	if status, ok := errors.AsType[*statusError](err); ok && status.code < 500 &&
		status.code != http.StatusTooManyRequests {
		return 0, false // the same question gets the same answer
	}
	if e.Wait > maxInPlace {
		return 0, false
	}
	full := firstBackoff << (try - 1)
	return max(e.Wait, full/2+rand.N(full/2)), true
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxWait)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), maxWait)
	}
	return 0
}

// outcome is the label of a request's counter.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return string(reasonOf(err))
}

// sleep waits for d or until the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
