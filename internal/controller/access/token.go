package access

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
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
type claims struct{ jwt.RegisteredClaims }

// readClaims returns the claims that can be read. They are empty if the token is not a JWT.
func readClaims(token string) (c claims) {
	_, _, _ = jwt.NewParser().ParseUnverified(token, &c.RegisteredClaims)
	return c
}

// before returns the earlier of t and the expiry of the token.
func (c *claims) before(t time.Time) time.Time {
	if c.ExpiresAt != nil && c.ExpiresAt.Before(t) {
		return c.ExpiresAt.Time
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
