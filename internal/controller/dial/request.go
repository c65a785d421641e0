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
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
)

// A Client sends HTTP requests. Responses are limited in size, and errors do not contain secrets.
type Client struct {
	HTTP    *http.Client
	Timeout time.Duration    // timeout of a request including its body
	Good    []int            // accepted statuses in addition to 200
	Now     func() time.Time // used for dates in Retry-After
	Secrets Secrets          // keys to remove from errors
}

const userAgent = "kubenergy"

// Signature is the header with the hex-encoded HMAC of the body, prefixed with "sha256=".
const Signature = "X-Kubenergy-Signature-256"

// Sign sets the signature header of a request.
func Sign(req *http.Request, key, body []byte) {
	sum := hmac.New(sha256.New, key)
	_, _ = sum.Write(body)
	req.Header.Set(Signature, "sha256="+hex.EncodeToString(sum.Sum(nil)))
}

// Exchange sends a request and returns the body of the response. The returned response is nil if none was received;
// its body is closed. Errors are of type *Error. Their messages do not wrap those of net/http, because these
// contain the whole URL including keys.
func (c *Client) Exchange(ctx context.Context, req *http.Request) ([]byte, *http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req.Header.Set("User-Agent", userAgent)
	resp, err := c.HTTP.Do(req.WithContext(ctx))
	if err != nil {
		return nil, nil, c.failed(req.URL, err)
	}
	defer resp.Body.Close()
	body, err := Body(resp) // also for errors, so that the connection can be reused
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

// status returns an error if the status of a response is not accepted.
func (c *Client) status(u *url.URL, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK || slices.Contains(c.Good, resp.StatusCode) {
		return nil
	}
	if to, ok := Redirect(resp); ok {
		return Refuse(ReasonAddress, "%s redirects to %.80s, but redirects are not followed", Place(u),
			c.Secrets.Conceal(to))
	}
	err := &Error{
		Reason: ReasonHTTP, Status: resp.StatusCode, Wait: apiclient.RetryAfter(resp.Header, c.Now(), MaxWait),
		Err: errors.New(strings.TrimSpace(fmt.Sprintf("%s responded with %d %s", Place(u), resp.StatusCode,
			http.StatusText(resp.StatusCode)))),
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		err.Reason = ReasonAuth
	}
	return err
}

// failed returns an Error for a request without a response.
func (c *Client) failed(u *url.URL, err error) error {
	text, reason := c.Secrets.Conceal(Cause(err, c.Timeout)), ReasonHTTP
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		reason = ReasonAddress
		if refused.Private {
			text += ", and allowPrivateAddress is not set"
		}
	}
	return Refuse(reason, "%s: %.200s", Place(u), text)
}

// MaxWait is the upper limit of Retry-After. A provider must not be able to disable itself for longer.
const MaxWait = time.Hour
