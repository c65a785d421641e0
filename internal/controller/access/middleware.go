package access

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
)

// retryAfter is when a caller may try again whose rights could not be found out.
const retryAfter = 5 * time.Second

// Require lets a request through to next if its user may do everything that what returns for it. Where what is nil or
// returns nothing, a valid token is enough. next finds the user with [UserOf].
func (g *Gate) Require(next http.Handler, what func(*http.Request) []Attributes) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := g.Authenticate(From(r), Token(r))
		if err != nil {
			g.Refuse(w, err)
			return
		}
		if wait, ok := g.people.allow(u.Username, g.o.Now()); !ok {
			g.metrics.refused("rate")
			Busy(w, http.StatusTooManyRequests, wait, "too many requests")
			return
		}
		if what == nil || g.authorize(w, r, u, what(r)) {
			next.ServeHTTP(w, r.WithContext(WithUser(r.Context(), u)))
		}
	})
}

// authorize reports whether the user may do all of it, and answers the request if not.
func (g *Gate) authorize(w http.ResponseWriter, r *http.Request, u *User, all []Attributes) bool {
	for _, a := range all {
		switch ok, err := g.Allowed(r.Context(), u, a); {
		case err != nil:
			g.Refuse(w, err)
			return false
		case !ok:
			g.metrics.refused("forbidden")
			// To name the missing right reveals nothing about what exists.
			Answer(w, http.StatusForbidden, "you may not "+a.String())
			return false
		}
	}
	return true
}

// Refuse answers a request whose maker is not known: 401, or 503 where it could not be found out.
func (g *Gate) Refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrUnauthenticated) {
		g.metrics.refused("token")
		w.Header().Set("WWW-Authenticate", `Bearer realm="kubenergy"`)
		Answer(w, http.StatusUnauthorized, ErrUnauthenticated.Error())
		return
	}
	g.metrics.refused("unavailable")
	Busy(w, http.StatusServiceUnavailable, retryAfter,
		"you cannot be authenticated or authorized now: the API server does not answer")
}

// AdmitAgent counts a request of a node's agent. Where it is one too many, it returns how long to wait.
func (g *Gate) AdmitAgent(node string) (wait time.Duration, ok bool) {
	return g.agents.allow(node, g.o.Now())
}

// ChargeAgent counts a request of a node's agent as so many more: one that costs as much as many small ones.
func (g *Gate) ChargeAgent(node string, more int) {
	now := g.o.Now()
	g.agents.of(node, now).ReserveN(now, min(more, g.agents.allowance.AtOnce))
}

// Busy answers a request that may be made again after a while.
func Busy(w http.ResponseWriter, status int, after time.Duration, text string) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(after.Seconds())))))
	Answer(w, status, text)
}

// Answer answers a request that did not succeed.
func Answer(w http.ResponseWriter, status int, text string) {
	body, _ := json.Marshal(api.Error{Error: text}) // texts can always be written
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // who is gone does not need it
}
