package exposition

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRoutes(t *testing.T) {
	var unwell, undelivered error
	routes := Routes{
		Metrics: fixture(),
		Healthy: func() error { return unwell },
		Forward: func(context.Context) error { return undelivered },
	}
	ask := func(h http.Handler, method, path string) (int, string, http.Header) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code, w.Body.String(), w.Result().Header
	}
	for _, c := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/metrics", 200, "kubenergy_node_energy_joules_total{"},
		{"GET", "/metrics?name[]=x", 200, "kubenergy_node_energy_joules_total{"},
		{"POST", "/metrics", 405, ""},
		{"DELETE", "/metrics", 405, ""},
		{"GET", "/healthz", 200, "ok\n"},
		{"POST", "/healthz", 405, ""},
		{"POST", "/forward-metrics", 200, "delivered\n"},
		{"GET", "/forward-metrics", 405, ""},
		{"GET", "/", 404, ""},
		{"GET", "//metrics", 307, "/metrics"},
		{"GET", "/metrics/", 404, ""},
		{"GET", "/debug/pprof/", 404, ""},
		{"GET", "/debug/requests", 404, ""},
		{"POST", "/ingest", 404, ""},
	} {
		code, body, header := ask(routes.Handler(), c.method, c.path)
		if code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%s %s: %d %.80q", c.method, c.path, code, body)
		}
		if (code == 405) != (header.Get("Allow") != "") {
			t.Errorf("%s %s: %d allows %q", c.method, c.path, code, header.Get("Allow"))
		}
	}
	unwell, undelivered = errors.New("no tick for 12 s"),
		errors.New("the controller\r\nsays: "+strings.Repeat("no ", 500))
	if code, body, _ := ask(routes.Handler(), "GET", "/healthz"); code != 503 || body != "no tick for 12 s\n" {
		t.Errorf("unhealthy: %d %q", code, body)
	}
	if code, body, _ := ask(routes.Handler(), "POST", "/forward-metrics"); code != 503 ||
		!strings.HasPrefix(body, "the controller says: no no") || len(body) > 501 {
		t.Errorf("not delivered: %d %q", code, body)
	}
	routes.Forward = nil
	if code, _, _ := ask(routes.Handler(), "POST", "/forward-metrics"); code != 404 {
		t.Errorf("without a push URL: %d", code)
	}
}

// TestToken verifies that a valid token is required, and that all requests are denied if the file is empty or
// missing.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	h := Routes{
		Metrics: fixture(), Healthy: func() error { return nil }, Forward: func(context.Context) error { return nil },
		TokenFile: file,
	}.Handler()
	ask := func(method, path, authorization string) int {
		r := httptest.NewRequest(method, path, nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if (w.Code == 401) != (w.Header().Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("status %d with WWW-Authenticate %q", w.Code, w.Header().Get("WWW-Authenticate"))
		}
		return w.Code
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(when string, authorizations ...string) {
		t.Helper()
		for _, a := range authorizations {
			if scrape, forward := ask("GET", "/metrics", a), ask("POST", "/forward-metrics", a); scrape != 401 ||
				forward != 401 {
				t.Errorf("%s, %q: got %d and %d, want 401", when, a, scrape, forward)
			}
		}
	}
	refused("without a file", "", "Bearer ", "Bearer x")
	write("\n")
	refused("with an empty file", "", "Bearer", "Bearer ", "Bearer \n")
	write("secret\n")
	refused("with a file", "", "secret", "Basic secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets",
		"Bearer secret x", "Bearer SECRET")
	for _, a := range []string{"Bearer secret", "bearer secret", "Bearer  secret "} {
		if scrape, forward := ask("GET", "/metrics", a), ask("POST", "/forward-metrics", a); scrape != 200 ||
			forward != 200 {
			t.Errorf("%q: got %d and %d, want 200", a, scrape, forward)
		}
	}
	if code := ask("GET", "/healthz", ""); code != 200 {
		t.Errorf("/healthz returned %d", code)
	}
	write("another")
	refused("with another token", "Bearer secret")
	if code := ask("GET", "/metrics", "Bearer another"); code != 200 {
		t.Errorf("the new token gets %d", code)
	}
}

// TestTokenFileIsComplainedOf verifies that an unusable token file is logged at startup, and not for each request.
func TestTokenFileIsComplainedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		var log bytes.Buffer
		h := Routes{Metrics: fixture(), TokenFile: file, Log: slog.New(slog.NewTextHandler(&log, nil))}.Handler()
		complaints := func(when string, want int) {
			t.Helper()
			if got := strings.Count(log.String(), "level=WARN"); got != want {
				t.Errorf("%s: got %d warnings, want %d:\n%s", when, got, want, &log)
			}
		}
		ask := func() {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		}
		complaints("at start, without a file", 1)
		for range 20 {
			ask()
		}
		complaints("within a minute", 1)
		if err := os.WriteFile(file, []byte(" \n"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		ask()
		complaints("with an empty file, a minute later", 2)
		if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		ask()
		complaints("with a file", 2)
	})
}

// TestNothingIsPushed verifies the response to a delivery request if batches are not pushed.
func TestNothingIsPushed(t *testing.T) {
	w := httptest.NewRecorder()
	Routes{Metrics: http.NotFoundHandler()}.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/forward-metrics", nil))
	if w.Code != 404 || w.Body.String() != "batches are not pushed: --push-url is not set\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	Routes{Metrics: http.NotFoundHandler(), TokenFile: "absent"}.Handler().ServeHTTP(w,
		httptest.NewRequest(http.MethodPost, "/forward-metrics", nil))
	if w.Code != 401 {
		t.Errorf("without a token: %d", w.Code)
	}
}

// TestForwardTimeout verifies that a client gets an error if a delivery takes too long, and that it may disconnect.
func TestForwardTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Routes{Metrics: http.NotFoundHandler(), Forward: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}.Handler()
		post := func(ctx context.Context) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/forward-metrics", nil).WithContext(ctx))
			if w.Code != 503 {
				t.Errorf("status = %d, want 503", w.Code)
			}
		}
		ctx, disconnect := context.WithCancel(t.Context())
		go post(ctx)
		synctest.Wait()
		disconnect()
		began := time.Now()
		post(t.Context())
		if took := time.Since(began); took != forwardTimeout {
			t.Errorf("the response took %v, want %v", took, forwardTimeout)
		}
	})
}

func TestFormat(t *testing.T) {
	for accept, open := range map[string]bool{
		"":           false,
		"*/*":        false,
		"text/plain": false,
		// Prometheus 3
		"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1": true,
		// Prometheus 2
		"application/openmetrics-text; version=1.0.0,application/openmetrics-text; " +
			"version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1": true,
		"application/openmetrics-text; version=0.0.1": false,
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;q=0.3": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		fixture().ServeHTTP(w, r)
		if got := strings.HasPrefix(w.Header().Get("Content-Type"),
			"application/openmetrics-text; version=1.0.0"); got != open ||
			strings.HasSuffix(w.Body.String(), "# EOF\n") != open {
			t.Errorf("Content-Type for %q = %q", accept, w.Header().Get("Content-Type"))
		}
	}
}

// stuck is a client that blocks until it is released.
type stuck struct {
	http.ResponseWriter
	writing chan<- struct{}
	proceed <-chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	s.writing <- struct{}{}
	<-s.proceed
	return s.ResponseWriter.Write(b)
}

// TestSlowClients verifies that slow clients do not block others, up to the maximum number of scrapes.
func TestSlowClients(t *testing.T) {
	e := fixture()
	scrape := func() int {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	writing, proceed := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	for i := range maxScrapes {
		if code := scrape(); code != 200 {
			t.Fatalf("with %d slow clients: %d", i, code)
		}
		group.Go(func() {
			w := httptest.NewRecorder()
			e.ServeHTTP(&stuck{w, writing, proceed}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if !strings.Contains(w.Body.String(), "\nkubenergy_node_energy_joules_total{") {
				t.Errorf("a slow client got %.80q", w.Body.String())
			}
		})
		<-writing
		e.SetStatus(&Status{}) // each client gets a different page
	}
	if code := scrape(); code != 503 {
		t.Errorf("one too many: %d", code)
	}
	close(proceed)
	group.Wait()
	if code := scrape(); code != 200 {
		t.Errorf("afterwards: %d", code)
	}
}
