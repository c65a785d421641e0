package meter

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// How a device is told who asks.
type manner uint8

const (
	anonymous manner = iota
	basic            // a header with the password in each request
	digest           // a header that proves that the password is known
	inQuery          // parameters of each request, as Tasmota wants it
	session          // a token that a password buys, as Redfish has it
)

const (
	idleTimeout = 90 * time.Second // longer than between polls, mostly
	simpleLimit = 5 * time.Second
	serverLimit = 20 * time.Second // management controllers take their time
)

// Device is one server, and how it is asked. It is for one goroutine.
type Device struct {
	dial.Client

	base     *url.URL
	manner   manner
	user     string
	key      string // name of the password's file
	keys     dial.KeyReader
	proof    *challenge // of digest
	token    string     // of a session
	location string     // of a session, to end it
}

func NewDevice(e *Entry, d *Deps) (*Device, error) {
	base, err := url.Parse(e.URL)
	if err != nil {
		return nil, errors.New("url cannot be read")
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
	v.Now, v.Timeout, v.Good = d.Clock, kind.limit, []int{
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

// Roots returns the certificates of a caFile; nil, those of the system, where none is named.
func Roots(caFile string) (*x509.CertPool, error) {
	if caFile == "" {
		return nil, nil
	}
	text, err := readRegular(caFile)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, cmp.Or(err, fmt.Errorf("caFile %s has no certificate in PEM", caFile))
	}
	return roots, nil
}

// get asks for a path and returns the body of a good answer.
func (d *Device) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return d.Ask(ctx, http.MethodGet, path, query, nil)
}

// Ask makes a request and returns the body of a good answer. It asks once more where the server has another nonce, or
// wants another session.
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
			return nil, dial.Refuse(dial.ReasonAuth, "%s wants no proof by SHA-256: the password is not sent",
				dial.Place(resp.Request.URL))
		}
		d.proof = next
		if proof != nil && !next.stale && next.nonce == proof.nonce {
			return nil, err // the very proof was refused
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

// send makes one request. Its response is nil where there was no answer; its body is closed.
func (d *Device) send(ctx context.Context, method, path string, query url.Values,
	payload []byte,
) ([]byte, *http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, d.base.Scheme+"://"+d.base.Host+path, bytes.NewReader(payload))
	if err != nil {
		return nil, nil, dial.Refuse(dial.ReasonAddress, "%s: the URL cannot be read", d.base.Host)
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

// authorize completes a request with its query and with who asks. The password is read each time, so that a new one
// counts at once, and so that no answer can show it.
func (d *Device) authorize(ctx context.Context, req *http.Request, query url.Values) error {
	var password string
	if d.manner != anonymous {
		var err error
		if password, err = d.Key(d.keys, d.key, d.base, d.base.Host); err != nil {
			return err
		}
	}
	q := url.Values{}
	maps.Copy(q, query)
	switch d.manner {
	case anonymous, digest:
	case basic:
		req.SetBasicAuth(d.user, password)
		d.Secrets.Hide(req.Header.Get("Authorization"))
	case inQuery:
		q.Set("user", d.user)
		q.Set("password", password)
	case session:
		if d.token == "" {
			if err := d.login(ctx, password); err != nil {
				return err
			}
		}
		req.Header.Set("X-Auth-Token", d.token)
	}
	// Tasmota reads %20 as a space, and not a plus.
	req.URL.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	if d.manner == digest && d.proof != nil {
		if d.proof.count >= maxUses {
			d.proof = nil // another one is asked for
			return nil
		}
		req.Header.Set("Authorization", d.proof.answer(d.user, password, req.Method, req.URL.RequestURI(), ""))
	}
	return nil
}

const sessions = "/redfish/v1/SessionService/Sessions"

// login begins a session.
func (d *Device) login(ctx context.Context, password string) error {
	payload, err := json.Marshal(map[string]string{"UserName": d.user, "Password": password})
	if err != nil {
		return dial.Refuse(dial.ReasonAuth, "key %q cannot be sent", d.key)
	}
	_, resp, err := d.send(ctx, http.MethodPost, sessions, nil, payload)
	if err != nil {
		return err
	}
	if d.token = resp.Header.Get("X-Auth-Token"); d.token == "" {
		return dial.Refuse(dial.ReasonAuth, "%s begins no session", d.base.Host)
	}
	d.Secrets.Hide(d.token)
	d.location = ""
	if location, err := resp.Location(); err == nil && location.Host == d.base.Host && SameServer(location.Path) {
		d.location = location.Path
	}
	return nil
}

// Logout ends a session: servers have few.
func (d *Device) Logout(ctx context.Context) {
	if d.token == "" || d.location == "" {
		return
	}
	_, _, _ = d.send(ctx, http.MethodDelete, d.location, nil, nil) // it times out otherwise
	d.token, d.location = "", ""
}
