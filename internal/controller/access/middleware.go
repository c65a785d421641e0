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

// retryAfter is the Retry-After value of responses sent while the API server is unavailable.
const retryAfter = 5 * time.Second

// Require returns a handler that calls next only if the user of a request is allowed to do everything in the
// attributes returned by the second argument. If it is nil or returns an empty slice, a valid token is sufficient.
// The handler next can retrieve the user with [UserOf].
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

// authorize reports whether the user has all of the attributes' permissions. If not, it also writes the error
// response.
func (g *Gate) authorize(w http.ResponseWriter, r *http.Request, u *User, all []Attributes) bool {
	for _, a := range all {
		switch ok, err := g.Allowed(r.Context(), u, a); {
		case err != nil:
			g.Refuse(w, err)
			return false
		case !ok:
			g.metrics.refused("forbidden")
			// The name of the missing permission does not reveal whether the object exists.
			Answer(w, http.StatusForbidden, "you are not allowed to "+a.String())
			return false
		}
	}
	return true
}

// Refuse rejects an unauthenticated request with status 401, or with status 503 if the token could not be reviewed.
func (g *Gate) Refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrUnauthenticated) {
		g.metrics.refused("token")
		w.Header().Set("WWW-Authenticate", `Bearer realm="kubenergy"`)
		Answer(w, http.StatusUnauthorized, ErrUnauthenticated.Error())
		return
	}
	g.metrics.refused("unavailable")
	Busy(w, http.StatusServiceUnavailable, retryAfter,
		"authentication and authorization are unavailable: the API server does not respond")
}

// AdmitAgent counts a request of a node's agent. If the request exceeds the limit, it returns false and the time to
// wait.
func (g *Gate) AdmitAgent(node string) (wait time.Duration, ok bool) {
	return g.agents.allow(node, g.o.Now())
}

// ChargeAgent charges the agent of a node for additional requests, because an expensive request counts as several.
func (g *Gate) ChargeAgent(node string, more int) {
	now := g.o.Now()
	g.agents.of(node).ReserveN(now, min(more, g.agents.allowance.AtOnce))
}

// Busy writes an error response with a Retry-After header.
func Busy(w http.ResponseWriter, status int, after time.Duration, text string) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(after.Seconds())))))
	Answer(w, status, text)
}

// Answer writes an error response with a JSON body.
func Answer(w http.ResponseWriter, status int, text string) {
	body, _ := json.Marshal(api.Error{Error: text}) // marshaling a string cannot fail
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}
