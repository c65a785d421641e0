package access

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// HeaderToken is an alternative header for the token. The proxy of the API server removes the Authorization header.
const HeaderToken = "X-Kubenergy-Token"

// Token returns the bearer token of a request, or "" if the request has none.
func Token(r *http.Request) string {
	if own := r.Header.Get(HeaderToken); own != "" {
		return strings.TrimSpace(own)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func plausibleToken(token string) bool {
	return token != "" && len(token) <= maxToken &&
		!strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// claims contains the unverified claims of a token. They are used only to select the requested audience and to
// shorten the lifetime of cached results.
type claims struct {
	audiences []string
	expiry    time.Time // zero if unknown
}

func readClaims(token string) (c claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 { // header, claims, signature
		return c
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return c
	}
	var said struct {
		Audience json.RawMessage `json:"aud"`
		Expiry   float64         `json:"exp"`
	}
	if json.Unmarshal(text, &said) != nil {
		return c
	}
	if said.Expiry > 0 && said.Expiry < 1<<40 {
		c.expiry = time.Unix(int64(said.Expiry), 0)
	}
	var one string
	switch {
	case bytes.HasPrefix(said.Audience, []byte("[")):
		if json.Unmarshal(said.Audience, &c.audiences) != nil {
			c.audiences = nil
		}
	case json.Unmarshal(said.Audience, &one) == nil:
		c.audiences = []string{one}
	}
	return c
}

// before returns the earlier of t and the expiry of the token.
func (c *claims) before(t time.Time) time.Time {
	if !c.expiry.IsZero() && c.expiry.Before(t) {
		return c.expiry
	}
	return t
}

// kindOf returns a short description of an API server error without its message.
func kindOf(err error) string {
	switch reason := apierrors.ReasonForError(err); {
	case reason != "":
		return string(reason)
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "no connection"
}
