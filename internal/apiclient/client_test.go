package apiclient

import (
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"https://controller:9443", ""},
		{"https://controller:9443/", ""},
		{"http://127.0.0.1:9443", ""},
		{"http://[::1]:9443", ""},
		{"http://localhost:9443", ""},
		{"http://controller:9443", "use https"},
		{"http://localhost.example:9443", "use https"},
		{"", "want http or https"},
		{"ftp://controller", "want http or https"},
		{"controller:9443", "want http or https"},
		{"https://me:secret@controller", "contains a password"},
		{"http://me:secret@controller", "contains a password"},
		{"https://me:secret@contr oller", "is invalid"},
		{"https://x/%zz", "is invalid"},
	} {
		_, err := New(Options{URL: tc.url})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", tc.url, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}

// TestCredentials verifies that the token and the CA certificates are read before each request and that errors do
// not contain the contents of invalid files.
func TestCredentials(t *testing.T) {
	var shown []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		shown = append(shown, q.Header.Get("Authorization"))
		_, _ = io.WriteString(w, q.Method+" "+q.URL.String()+" "+q.Header.Get("Accept"))
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // discard TLS handshake errors
	defer server.Close()
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem")
	c, err := New(Options{URL: server.URL + "/", TokenFile: token, CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	good := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	for _, tc := range []struct{ token, ca, want string }{
		{"", "", "reading the token"},
		{" \n", "", "no valid token"},
		{"two words", "", "no valid token"},
		{strings.Repeat("x", maxToken+1), "", "want a regular file of at most"},
		{"one\n", "", "reading the CA certificates"},
		{"one\n", "nonsense", "no certificate"},
		{"one\n", strings.Repeat(" ", maxCA+1), "want a regular file of at most"},
		{"one\n", good, ""},
		{"two", good, ""},
	} {
		for name, text := range map[string]string{token: tc.token, ca: tc.ca} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if text == "" {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		a, err := c.Do(t.Context(), &Request{
			Method: http.MethodGet, Path: "/x?y=1", Header: map[string]string{"Accept": "text/plain"}, Most: 100,
		})
		switch {
		case tc.want == "" && (err != nil || string(a.Body) != "GET /x?y=1 text/plain" || a.Status != http.StatusOK ||
			a.At.IsZero()):
			t.Errorf("%+v, %v", a, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) ||
			strings.Contains(err.Error(), "two words")):
			t.Errorf("got error %v, want %q", err, tc.want)
		}
	}
	if got := strings.Join(shown, ", "); got != "Bearer one, Bearer two" {
		t.Errorf("unexpected Authorization headers: %s", got)
	}
}

func TestAnswers(t *testing.T) {
	status, body, asked := 200, "", 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	c, err := New(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, tc := range []struct {
		status  int
		body    string
		refused string
		failed  bool
	}{
		{200, "0123456789", "", false},
		{200, "0123456789x", "", true},
		{204, "", "", false},
		{304, "", "", false},
		{301, "go", "301 Moved Permanently: go", false},
		{403, "  no\n\xff ", "403 Forbidden: no ?", false},
		{500, strings.Repeat("x", 1000), "500 Internal Server Error: " + strings.Repeat("x", maxError), false},
	} {
		status, body, asked = tc.status, tc.body, 0
		a, err := c.Do(t.Context(), &Request{Method: http.MethodPost, Path: "/", Body: []byte("{}"), Most: 10})
		refused, _ := errors.AsType[*Refused](err)
		switch {
		case asked != 1:
			t.Errorf("%d: got %d requests, want 1", tc.status, asked)
		case tc.refused != "":
			if refused == nil || !strings.HasSuffix(err.Error(), tc.refused) || refused.Status != tc.status {
				t.Errorf("%d: %v", tc.status, err)
			}
		case tc.failed != (err != nil) || refused != nil:
			t.Errorf("%d: %v", tc.status, err)
		case err == nil && (a.Status != tc.status || string(a.Body) != tc.body):
			t.Errorf("%d: %+v", tc.status, a)
		}
	}
}
