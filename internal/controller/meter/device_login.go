package meter

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// manner is the authentication method of a device.
type manner uint8

// authorize sets the query of a request and adds the credentials. The password is read for each request, so that a
// new one is effective immediately and is removed from all errors.
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
	// Tasmota decodes %20 as a space, but not a plus sign.
	req.URL.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	if d.manner == digest && d.proof != nil {
		if d.proof.count >= maxUses {
			d.proof = nil // request a new nonce
			return nil
		}
		req.Header.Set("Authorization", d.proof.answer(d.user, password, req.Method, req.URL.RequestURI(), ""))
	}
	return nil
}

// login creates a session.
func (d *Device) login(ctx context.Context, password string) error {
	payload, err := json.Marshal(map[string]string{"UserName": d.user, "Password": password})
	if err != nil {
		return dial.Refuse(dial.ReasonAuth, "key %q cannot be encoded", d.key)
	}
	_, resp, err := d.send(ctx, http.MethodPost, sessions, nil, payload)
	if err != nil {
		return err
	}
	if d.token = resp.Header.Get("X-Auth-Token"); d.token == "" {
		return dial.Refuse(dial.ReasonAuth, "%s returned no session token", d.base.Host)
	}
	d.Secrets.Hide(d.token)
	d.location = ""
	if location, err := resp.Location(); err == nil && location.Host == d.base.Host && SameServer(location.Path) {
		d.location = location.Path
	}
	return nil
}

// Logout deletes the session, because servers limit the number of sessions.
func (d *Device) Logout(ctx context.Context) {
	if d.token == "" || d.location == "" {
		return
	}
	_, _, _ = d.send(ctx, http.MethodDelete, d.location, nil, nil) // best effort, the session also times out
	d.token, d.location = "", ""
}
