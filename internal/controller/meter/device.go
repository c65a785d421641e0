package meter

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

const (
	anonymous manner = iota
	basic            // HTTP basic authentication
	digest           // HTTP digest authentication
	inQuery          // query parameters, as required by Tasmota
	session          // Redfish session token
)

const (
	idleTimeout = 90 * time.Second // longer than most polling intervals
	simpleLimit = 5 * time.Second
	serverLimit = 20 * time.Second // management controllers are slow
)

// Device is the client of a server. It must not be used concurrently.
type Device struct {
	dial.Client

	base     *url.URL
	manner   manner
	user     string
	key      string // name of the password file
	keys     dial.KeyReader
	proof    *challenge // current digest challenge
	token    string     // session token
	location string     // path of the session, to delete it
}

// NewDevice returns a Device for a validated entry. It returns an error if the CA file is invalid.
func NewDevice(e *Entry, d *Deps) (*Device, error) {
	base, err := url.Parse(e.URL)
	if err != nil {
		return nil, errors.New("invalid url")
	}
	kind := kinds[e.Kind]
	v := &Device{base: base, user: e.Username, key: e.PasswordKey, keys: d.Keys}
	switch {
	case e.PasswordKey == "":
	case e.Auth == AuthSession:
		v.manner = session
	default:
		v.manner = kind.manner
	}
	v.Now, v.Timeout, v.Good = time.Now, kind.limit, []int{
		http.StatusCreated, http.StatusAccepted, http.StatusNoContent,
	}
	roots, err := Roots(e.CAFile)
	if err != nil {
		return nil, err
	}
	v.HTTP = dial.NewClient(dial.Options{
		Policy:  dial.Policy{Private: true, Loopback: d.Loopback},
		Timeout: v.Timeout, Idle: idleTimeout, Roots: roots, Resolver: d.Resolver,
	})
	return v, nil
}

// Roots loads the certificates of a caFile. It returns nil for the system's certificates if caFile is empty.
func Roots(caFile string) (*x509.CertPool, error) {
	if caFile == "" {
		return nil, nil
	}
	text, err := apiclient.ReadFile(caFile, maxFile)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, cmp.Or(err, fmt.Errorf("no PEM certificate in caFile %s", caFile))
	}
	return roots, nil
}

// get sends a GET request and returns the body of a successful response.
func (d *Device) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return d.Ask(ctx, http.MethodGet, path, query, nil)
}

// Ask sends a request and returns the body of a successful response. It retries once if the server requires a new
// nonce or a new session.
func (d *Device) Ask(ctx context.Context, method, path string, query url.Values, payload []byte) ([]byte, error) {
	proof, token := d.proof, d.token
	body, resp, err := d.send(ctx, method, path, query, payload)
	if resp == nil || resp.StatusCode != http.StatusUnauthorized {
		return body, err
	}
	switch d.manner {
	case digest:
		next := readChallenge(resp.Header)
		if next == nil {
			return nil, dial.Refuse(dial.ReasonAuth, "%s does not support digest authentication with SHA-256",
				dial.Place(resp.Request.URL))
		}
		d.proof = next
		if proof != nil && !next.stale && next.nonce == proof.nonce {
			return nil, err // the current nonce was rejected, so the password is wrong
		}
	case session:
		if d.token = ""; token == "" {
			return nil, err
		}
	default:
		return nil, err
	}
	body, _, err = d.send(ctx, method, path, query, payload)
	if dial.ReasonOf(err) == dial.ReasonAuth && err != nil {
		d.proof, d.token = nil, ""
	}
	return body, err
}

// send sends a request once. The returned response is nil if none was received; its body is closed.
func (d *Device) send(ctx context.Context, method, path string, query url.Values,
	payload []byte,
) ([]byte, *http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.base.Scheme+"://"+d.base.Host+path, bytes.NewReader(payload))
	if err != nil {
		return nil, nil, dial.Refuse(dial.ReasonAddress, "%s: invalid URL", d.base.Host)
	}
	req.Header.Set("Accept", "application/json")
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if method != http.MethodPost || path != sessions {
		if err := d.authorize(ctx, req, query); err != nil {
			return nil, nil, err
		}
	}
	return d.Exchange(ctx, req)
}

const sessions = "/redfish/v1/SessionService/Sessions"
