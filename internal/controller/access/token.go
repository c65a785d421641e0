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

// HeaderToken bears a token where Authorization cannot: the API server's proxy keeps that one for itself.
const HeaderToken = "X-Kubenergy-Token"

// Token returns the token that a request bears, or "".
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

// claims are what a token says of itself. It is unchecked: it serves to ask the right question, and to forget
// earlier.
type claims struct {
	audiences []string
	expiry    time.Time // zero: it does not say
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

// before returns t, or when the token runs out if that is earlier.
func (c *claims) before(t time.Time) time.Time {
	if !c.expiry.IsZero() && c.expiry.Before(t) {
		return c.expiry
	}
	return t
}

// kindOf says what kind of error the API server's is, without its text.
func kindOf(err error) string {
	switch reason := apierrors.ReasonForError(err); {
	case reason != "":
		return string(reason)
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "no connection"
}
