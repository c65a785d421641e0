package dial

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Client makes requests whose answers and errors are bounded and hold no secrets.
type Client struct {
	HTTP    *http.Client
	Timeout time.Duration    // of one request, its body included
	Good    []int            // statuses of answers; nil: 200 alone
	Now     func() time.Time // for dates in Retry-After
	Secrets Secrets          // keys that were sent or read
}

const userAgent = "kubenergy"

// Signature is the header that holds sha256= and the HMAC of the body, in hexadecimal digits.
const Signature = "X-Kubenergy-Signature-256"

// Sign signs a request with the body.
func Sign(req *http.Request, key, body []byte) {
	sum := hmac.New(sha256.New, key)
	_, _ = sum.Write(body)
	req.Header.Set(Signature, "sha256="+hex.EncodeToString(sum.Sum(nil)))
}

// Exchange makes one request and returns the body of its answer. The response, whose body is closed, is nil where there
// was none. Errors are of type *Error; their texts are made anew, since those of net/http have the whole URL in them,
// keys included.
func (c *Client) Exchange(ctx context.Context, req *http.Request) ([]byte, *http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req.Header.Set("User-Agent", userAgent)
	resp, err := c.HTTP.Do(req.WithContext(ctx))
	if err != nil {
		return nil, nil, c.failed(req.URL, err)
	}
	defer resp.Body.Close()
	body, err := Body(resp) // also of errors, so that the connection can be used again
	if refused := c.status(req.URL, resp); refused != nil {
		return nil, resp, refused
	}
	switch {
	case errors.Is(err, ErrTooLong):
		return nil, resp, Refuse(ReasonSize, "%s: %w", Place(req.URL), err)
	case err != nil:
		return nil, nil, c.failed(req.URL, err)
	}
	return body, resp, nil
}

// status returns the error that a status other than a good one is.
func (c *Client) status(u *url.URL, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK || slices.Contains(c.Good, resp.StatusCode) {
		return nil
	}
	if to, ok := Redirect(resp); ok {
		return Refuse(ReasonAddress, "%s redirects to %.80s: redirects are not followed", Place(u),
			c.Secrets.Conceal(to))
	}
	err := &Error{
		Reason: ReasonHTTP, Status: resp.StatusCode, Wait: retryAfter(resp.Header, c.Now()),
		Err: errors.New(strings.TrimSpace(fmt.Sprintf("%s answered %d %s", Place(u), resp.StatusCode,
			http.StatusText(resp.StatusCode)))),
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		err.Reason = ReasonAuth
	}
	return err
}

// failed describes an error on the way.
func (c *Client) failed(u *url.URL, err error) error {
	text, reason := c.Secrets.Conceal(Cause(err, c.Timeout)), ReasonHTTP
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		reason = ReasonAddress
		if refused.Private {
			text += ", and the source does not say allowPrivateAddress"
		}
	}
	return Refuse(reason, "%s: %.200s", Place(u), text)
}

// MaxWait bounds Retry-After: a provider cannot silence itself for longer.
const MaxWait = time.Hour

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, MaxWait)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), MaxWait)
	}
	return 0
}
