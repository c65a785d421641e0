package access_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/test/kit"
)

func TestWhoHoldsAToken(t *testing.T) {
	s := newAPIServer(t)
	c := newClock()
	g := s.gate(t, func(o *access.Options) { o.Now = c.now })
	later := c.now().Add(time.Hour)
	person := s.add("person", holder{name: "jane"})
	ours := s.add(jwt(later, access.Audience), holder{name: "scheduler", audience: access.Audience})
	agent := s.add(jwt(later.Add(1), access.Audience), holder{name: "agent", node: "n1", audience: access.Audience})
	other := s.add(jwt(later.Add(2), "vault"), holder{name: "agent", node: "n1", audience: "vault"})
	// This token claims the controller's audience but does not have it.
	liar := s.add(jwt(later.Add(3), access.Audience), holder{name: "agent", node: "n1"})

	for name, want := range map[string]string{
		person: "jane", ours: "scheduler", agent: "agent", other: "", liar: "", "unknown": "", "": "", "a b": "",
		strings.Repeat("x", 20<<10): "",
	} {
		u, err := g.Authenticate(t.Context(), name)
		if got := ""; u != nil {
			got = u.Username
			if got != want || err != nil {
				t.Errorf("%.20q: %s, %v", name, got, err)
			}
		} else if want != "" || !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("%.20q: %v, want %q", name, err, want)
		}
	}
	// Agent accepts only tokens with the controller's audience.
	for token, want := range map[string]string{agent: "n1", person: "", other: "", liar: ""} {
		u, err := g.Agent(t.Context(), token)
		switch {
		case want == "" && !errors.Is(err, access.ErrUnauthenticated):
			t.Errorf("Agent(%.20q) = %v, %v, want ErrUnauthenticated", token, u, err)
		case want != "" && (err != nil || u.Node() != want):
			t.Errorf("%.20q: %v, %v", token, u, err)
		}
	}
}

func TestAnswersCountForAWhile(t *testing.T) {
	s, c := newAPIServer(t), newClock()
	g := s.gate(t, func(o *access.Options) { o.Now = c.now })
	long := s.add(jwt(c.now().Add(time.Hour), access.Audience), holder{name: "a", node: "n", audience: access.Audience})
	short := s.add(jwt(c.now().Add(time.Minute), access.Audience),
		holder{name: "a", node: "n", audience: access.Audience})
	ask := func(token string) error {
		_, err := g.Agent(t.Context(), token)
		return err
	}
	reviews := func(want int, what string) {
		t.Helper()
		if n, _ := s.counted(); n != want {
			t.Errorf("%s: got %d reviews, want %d", what, n, want)
		}
	}
	for range 10 {
		if err := errors.Join(ask(long), ask(short)); err != nil {
			t.Fatal(err)
		}
	}
	reviews(2, "immediately")
	c.add(61 * time.Second)
	s.set(func() { delete(s.holders, short) })
	if err := ask(short); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("an expired token: %v", err)
	}
	if err := ask(long); err != nil {
		t.Error(err)
	}
	reviews(3, "after a minute")
	for range 5 {
		if ask(short) == nil {
			t.Error("an invalid token was accepted")
		}
	}
	reviews(3, "rejected recently")
	c.add(11 * time.Second)
	_ = ask(short)
	reviews(4, "rejected earlier")
	s.set(func() { delete(s.holders, long) }) // as if its pod was deleted
	c.add(5 * time.Minute)
	if err := ask(long); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("a revoked token: %v", err)
	}
}

// TestAgentsAreRenewed verifies that agent tokens are reviewed before the cached result expires and that no request
// waits for the review.
func TestAgentsAreRenewed(t *testing.T) {
	s, c := newAPIServer(t), newClock()
	g := s.gate(t, func(o *access.Options) { o.Now = c.now })
	token := s.add(jwt(c.now().Add(time.Hour), access.Audience),
		holder{name: "a", node: "n", audience: access.Audience})
	ask := func() error {
		_, err := g.Agent(t.Context(), token)
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	s.set(func() { s.block = held; delete(s.holders, token) })
	c.add(4*time.Minute + 35*time.Second) // the cached result is valid for 5 minutes and renewed earlier
	for range 100 {
		if err := ask(); err != nil {
			t.Fatal("an agent waited for its review:", err)
		}
	}
	close(held)
	kit.Eventually(t, 10*time.Second, "the agent is rejected after the renewal", func() bool { return ask() != nil })
	if n, _ := s.counted(); n != 2 {
		t.Errorf("got %d reviews, want 2", n)
	}
}

func TestABurstIsOneReview(t *testing.T) {
	s := newAPIServer(t)
	g := s.gate(t)
	token := s.add("person", holder{name: "jane"})
	s.block = make(chan struct{})
	var wg sync.WaitGroup
	errs := make(chan error, 200)
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if i%2 == 0 { // canceled caller
				cancel()
			}
			defer cancel()
			if _, err := g.Authenticate(ctx, token); !errors.Is(err, context.Canceled) {
				errs <- err
			}
		})
	}
	close(s.block)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	// A caller that misses the cache just before the review completes must not start another review.
	if n, _ := s.counted(); n != 1 {
		t.Errorf("got %d reviews, want 1", n)
	}
}

// TestTheAPIServerIsAway verifies that only known agents are accepted while the API server is unavailable and that
// no request waits for it.
func TestTheAPIServerIsAway(t *testing.T) {
	for name, status := range map[string]int{"overloaded": 429, "failing": 500, "forbidden": 403} {
		s, c := newAPIServer(t), newClock()
		g := s.gate(t, func(o *access.Options) { o.Now = c.now })
		agent := s.add(jwt(c.now().Add(time.Hour), access.Audience),
			holder{name: "a", node: "n", audience: access.Audience})
		brief := s.add(jwt(c.now().Add(8*time.Minute), access.Audience),
			holder{name: "a", node: "n", audience: access.Audience})
		person := s.add("person", holder{name: "jane"})
		for _, token := range []string{agent, brief} {
			if _, err := g.Agent(t.Context(), token); err != nil {
				t.Fatal(err)
			}
		}
		jane, err := g.Authenticate(t.Context(), person)
		if err != nil {
			t.Fatal(err)
		}
		s.set(func() { s.status = status })
		c.add(6 * time.Minute)
		if u, err := g.Agent(t.Context(), agent); err != nil || u.Node() != "n" {
			t.Errorf("%s: a known agent: %v", name, err)
		}
		if _, err := g.Agent(t.Context(), brief); err != nil {
			t.Errorf("%s: an agent with a valid token: %v", name, err)
		}
		for what, err := range map[string]error{
			"a person": func() error { _, err := g.Authenticate(t.Context(), person); return err }(),
			"a permission": func() error {
				_, err := g.Allowed(t.Context(), jane, access.Attributes{Verb: "get"})
				return err
			}(),
			"a new agent": func() error {
				_, err := g.Agent(t.Context(),
					jwt(c.now(), access.Audience))
				return err
			}(),
			"a person as an agent": func() error { _, err := g.Agent(t.Context(), person); return err }(),
		} {
			if err == nil || errors.Is(err, access.ErrUnauthenticated) {
				t.Errorf("%s: %s: got %v, want a temporary error", name, what, err)
			}
		}
		before, _ := s.counted()
		for range 1000 {
			_, _ = g.Agent(t.Context(), agent)
		}
		c.add(3 * time.Minute)
		if _, err := g.Agent(t.Context(), brief); err == nil {
			t.Errorf("%s: an expired token was accepted", name)
		}
		c.add(8 * time.Minute)
		if _, err := g.Agent(t.Context(), agent); err == nil {
			t.Errorf("%s: an agent was accepted after the grace period", name)
		}
		if after, _ := s.counted(); after != before {
			t.Errorf("%s: got %d reviews, want 0", name, after-before)
		}
		s.set(func() { s.status = 0 })
		c.add(6 * time.Second)
		if _, err := g.Agent(t.Context(), agent); err != nil {
			t.Errorf("%s: unexpected error after recovery: %v", name, err)
		}
		if _, err := g.Authenticate(t.Context(), person); err != nil {
			t.Errorf("%s: unexpected error after recovery: %v", name, err)
		}
	}
}

func TestAnOddQuestionStopsNoOther(t *testing.T) {
	s := newAPIServer(t)
	g := s.gate(t)
	token := s.add("person", holder{name: "jane"})
	s.set(func() { s.status = http.StatusUnprocessableEntity })
	if _, err := g.Authenticate(t.Context(), "odd"); !errors.Is(err, access.ErrUnauthenticated) {
		t.Error(err)
	}
	if ok, err := g.Allowed(t.Context(), &access.User{Username: "x"}, access.Attributes{Verb: "odd"}); ok || err != nil {
		t.Error(ok, err)
	}
	s.set(func() { s.status = 0 })
	if _, err := g.Authenticate(t.Context(), token); err != nil {
		t.Error(err)
	}
}

func TestTwoUsersAreNotOne(t *testing.T) {
	s := newAPIServer(t)
	g := s.gate(t)
	s.rights["jane list energy.kubenergy.io/ shop"] = true
	what := access.Attributes{Verb: "list", Group: "kubenergy.io", Resource: "energy", Namespace: "shop"}
	for _, u := range []*access.User{
		{Username: "jane"},
		{Username: "jane", Groups: []string{"a", "b"}},
		{Username: "jane", Groups: []string{"a\x00b"}},
		{Username: "jane", Extra: map[string]authenticationv1.ExtraValue{"a": {"b"}}},
		{Username: "jane", Extra: map[string]authenticationv1.ExtraValue{"a": {"b", "c"}}},
		{Username: "jane", Extra: map[string]authenticationv1.ExtraValue{"a": {"b c"}}},
	} {
		for range 3 {
			if ok, err := g.Allowed(t.Context(), u, what); !ok || err != nil {
				t.Error(u, ok, err)
			}
		}
	}
	if _, n := s.counted(); n != 6 {
		t.Errorf("got %d access reviews for six users", n)
	}
	what.Namespace = "bank"
	if ok, err := g.Allowed(t.Context(), &access.User{Username: "jane"}, what); ok || err != nil {
		t.Error(ok, err)
	}
}

func request(token string, header string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/shop/ledger", nil)
	switch {
	case token == "":
	case header == access.HeaderToken:
		r.Header.Set(header, token)
	default:
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func TestRequire(t *testing.T) {
	var logged bytes.Buffer
	s := newAPIServer(t)
	g := s.gate(t, func(o *access.Options) {
		o.Log, o.Registerer = slog.New(slog.NewTextHandler(&logged, nil)), prometheus.NewRegistry()
		o.People = access.Allowance{PerSecond: 0.001, AtOnce: 20}
	})
	jane, joe := s.add("token-of-jane", holder{name: "jane"}), s.add("token-of-joe", holder{name: "joe"})
	s.rights["jane list energy.kubenergy.io/ shop"] = true
	s.rights["jane create jobs.batch/ shop"] = true
	what := func(*http.Request) []access.Attributes {
		return []access.Attributes{
			{Verb: "list", Group: "kubenergy.io", Resource: "energy", Namespace: "shop"},
			{Verb: "create", Group: "batch", Resource: "jobs", Namespace: "shop"},
		}
	}
	var seen *access.User
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = access.UserOf(r.Context()) })
	get := func(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
		seen = nil
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if (w.Code == http.StatusOK) != (seen != nil) {
			t.Errorf("status %d, but the next handler was called with user %v", w.Code, seen)
		}
		if w.Code != http.StatusOK {
			var e api.Error
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error == "" {
				t.Errorf("status %d: unexpected body %s", w.Code, w.Body)
			}
		}
		return w
	}
	h, open := g.Require(next, what), g.Require(next, nil)
	for name, c := range map[string]struct {
		handler http.Handler
		request *http.Request
		code    int
	}{
		"allowed":             {h, request(jane, ""), 200},
		"allowed, own header": {h, request(jane, access.HeaderToken), 200},
		"not allowed":         {h, request(joe, ""), 403},
		"any user":            {open, request(joe, ""), 200},
		"no token":            {open, request("", ""), 401},
		"invalid":             {open, request("wrong", ""), 401},
		"invalid, own header": {open, request("wrong", access.HeaderToken), 401},
		"no attributes": {
			g.Require(next, func(*http.Request) []access.Attributes { return nil }),
			request(joe, ""), 200,
		},
		"an empty bearer": {open, request(" ", ""), 401},
		"one of two permissions": {g.Require(next, func(r *http.Request) []access.Attributes {
			return append(what(r), access.Attributes{Verb: "delete"})
		}), request(jane, ""), 403},
	} {
		w := get(c.handler, c.request)
		if w.Code != c.code {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, c.code)
		}
		if w.Code == http.StatusUnauthorized && (w.Header().Get("WWW-Authenticate") == "" ||
			!strings.Contains(w.Body.String(), access.ErrUnauthenticated.Error())) {
			t.Errorf("%s: %v %s", name, w.Header(), w.Body)
		}
	}
	ours := request(joe, "")
	ours.Header.Set(access.HeaderToken, "wrong")
	if w := get(open, ours); w.Code != http.StatusUnauthorized {
		t.Errorf("the token in our header did not take precedence, got status %d", w.Code)
	}
	codes := map[int]int{}
	for range 100 {
		w := get(open, request(joe, ""))
		codes[w.Code]++
		if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
			t.Error("missing Retry-After header")
		}
	}
	if codes[429] < 80 || codes[429]+codes[200] != 100 {
		t.Errorf("unexpected statuses of 100 concurrent requests: %v", codes)
	}
	if w := get(open, request(jane, "")); w.Code != http.StatusOK {
		t.Errorf("another user: got status %d", w.Code)
	}
	s.set(func() { s.status = 500 })
	if w := get(open, request("unknown", "")); w.Code != http.StatusServiceUnavailable ||
		w.Header().Get("Retry-After") == "" {
		t.Errorf("while the API server is unavailable: got status %d", w.Code)
	}
	if strings.Contains(logged.String(), "token-of") || strings.Contains(logged.String(), "unknown") {
		t.Errorf("a token was logged: %s", &logged)
	}
}

// TestGuesses verifies that an address that guesses tokens does not exhaust the reviews of other addresses.
func TestGuesses(t *testing.T) {
	s := newAPIServer(t)
	g := s.gate(t)
	h := g.Require(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
	codes := map[int]int{}
	for i := range 10_000 {
		r := request(fmt.Sprint("guess", i), "")
		r.RemoteAddr = fmt.Sprintf("[2001:db8::%x]:1", i)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		codes[w.Code]++
	}
	if n, _ := s.counted(); n > 200 || codes[401]+codes[503] != 10_000 {
		t.Errorf("10,000 guesses caused %d reviews and the statuses %v", n, codes)
	}
	token := s.add("person", holder{name: "jane"})
	r := request(token, "")
	r.RemoteAddr = "[2001:db9::1]:1"
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("from another address: got status %d", w.Code)
	}
}

// TestGuessesLockNoAgentOut verifies that known tokens are still accepted if another client behind the same proxy
// guesses tokens, and that forwarding headers are ignored.
func TestGuessesLockNoAgentOut(t *testing.T) {
	s, c := newAPIServer(t), newClock()
	g := s.gate(t, func(o *access.Options) { o.Now = c.now })
	from := func(n int) context.Context {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.RemoteAddr = "192.0.2.1:1" // address of the proxy
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", n%250))
		r.Header.Set("Forwarded", fmt.Sprintf("for=198.51.100.%d", n%250))
		return access.From(r)
	}
	agent := s.add(jwt(c.now().Add(time.Hour), access.Audience),
		holder{name: "a", node: "n", audience: access.Audience})
	person := s.add("person", holder{name: "jane"})
	if _, err := g.Agent(from(0), agent); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Authenticate(from(0), person); err != nil {
		t.Fatal(err)
	}
	guess := func() {
		for i := range 200 {
			_, _ = g.Agent(from(i), fmt.Sprintf("guess-%d-%d", c.now().UnixNano(), i))
		}
	}
	for round := range 4 { // longer than any cached result is valid
		guess()
		c.add(6 * time.Minute)
		guess()
		if _, err := g.Agent(from(0), agent); err != nil {
			t.Errorf("round %d: a known agent: %v", round, err)
		}
		if _, err := g.Authenticate(from(0), person); err != nil {
			t.Errorf("round %d: a known person: %v", round, err)
		}
	}
	before, _ := s.counted()
	guess()
	if n, _ := s.counted(); n != before {
		t.Errorf("%d guesses were reviewed although the limit was reached", n-before)
	}
	// A revoked token is rejected at the next review and counts as a guess after that.
	s.set(func() { delete(s.holders, agent) })
	c.add(6 * time.Minute)
	guess()
	if _, err := g.Agent(from(0), agent); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("a revoked token: %v", err)
	}
	c.add(11 * time.Second)
	guess()
	if _, err := g.Agent(from(0), agent); !errors.Is(err, access.ErrBusy) {
		t.Errorf("a revoked token, again: %v", err)
	}
}

// TestReviewsAreLimited verifies that the rate of reviews is limited if every request has a new token.
func TestReviewsAreLimited(t *testing.T) {
	s := newAPIServer(t)
	g := s.gate(t, func(o *access.Options) { o.Reviews = 5 })
	var busy, refused int
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := g.Agent(ctx, fmt.Sprint("t", i))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, access.ErrUnauthenticated):
				refused++
			case err != nil:
				busy++
			}
		})
	}
	wg.Wait()
	// A burst of 6 plus 5 per second, regardless of how long the test takes on a slow machine.
	if n, _ := s.counted(); float64(n) > 7+5*time.Since(began).Seconds() || refused > n || busy+refused != 200 {
		t.Errorf("got %d reviews, %d rejected and %d busy requests", n, refused, busy)
	}
}
