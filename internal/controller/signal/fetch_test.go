package signal

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name     string
		answers  []http.HandlerFunc // in order; the last one is repeated
		requests int64
		reason   dial.Reason // empty if no error is expected
	}{
		{"good", []http.HandlerFunc{description("{}")}, 1, ""},
		{"second attempt succeeds", []http.HandlerFunc{status(503), description("{}")}, 2, ""},
		{"third attempt succeeds", []http.HandlerFunc{reset, status(500), description("{}")}, 3, ""},
		{"all attempts fail", []http.HandlerFunc{status(502)}, 3, dial.ReasonHTTP},
		{"refused", []http.HandlerFunc{status(401), description("{}")}, 1, dial.ReasonAuth},
		{"forbidden", []http.HandlerFunc{status(403), description("{}")}, 1, dial.ReasonAuth},
		{"not found", []http.HandlerFunc{status(404), description("{}")}, 1, dial.ReasonHTTP},
		{"429, short", []http.HandlerFunc{status(429, "Retry-After", "2"), description("{}")}, 2, ""},
		{"429, long", []http.HandlerFunc{status(429, "Retry-After", "600"), description("{}")}, 1, dial.ReasonRate},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p *provider
			p = newProvider(t, func(w http.ResponseWriter, r *http.Request) {
				c.answers[min(int(p.requests.Load()), len(c.answers))-1](w, r)
			})
			f := testFetcher(t, p.Server, nil)
			granted := int64(0)
			f.reserve = func(context.Context) error { granted++; return nil }
			_, _, err := f.get(t.Context(), request{url: p.URL})
			if (err == nil) != (c.reason == "") || err != nil && dial.ReasonOf(err) != c.reason {
				t.Errorf("got %v, want reason %q", err, c.reason)
			}
			if got := p.requests.Load(); got != c.requests || granted != got {
				t.Errorf("%d requests and %d reservations, want %d", got, granted, c.requests)
			}
		})
	}
}

// TestBackoff verifies that the delay between attempts increases, is randomized, and respects Retry-After.
func TestBackoff(t *testing.T) {
	busy := func(wait time.Duration) error {
		return &dial.Error{Reason: dial.ReasonRate, Wait: wait, Status: 429, Err: errors.New("x answered 429")}
	}
	var first, second []time.Duration
	for range 50 {
		a, _ := backoff(busy(0), 1)
		b, _ := backoff(busy(0), 2)
		first, second = append(first, a), append(second, b)
		if a < firstBackoff/2 || a > firstBackoff || b < firstBackoff || b > 2*firstBackoff {
			t.Fatalf("delays are %v and %v", a, b)
		}
	}
	if first[0] == first[1] && first[1] == first[2] || second[0] == second[1] && second[1] == second[2] {
		t.Error("the delays are not randomized")
	}
	if got, again := backoff(busy(9*time.Second), 1); got != 9*time.Second || !again {
		t.Errorf("delay = %v, want at least 9s", got)
	}
	if _, again := backoff(busy(time.Minute), 1); again {
		t.Error("unexpected retry after a minute within a poll")
	}
	if _, again := backoff(busy(0), maxTries); again {
		t.Error("unexpected retry after the last attempt")
	}
}

// TestKeysStaySecret verifies that no error contains a key, however the key was sent and whatever the server
// responds.
func TestKeysStaySecret(t *testing.T) {
	const key = "s3same/+="
	leaks := map[string]http.HandlerFunc{
		"echo in a body": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"error":%q}`, r.URL.RawQuery+r.Header.Get("Auth-Token"))
		},
		"echo in a redirect": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://evil.example/?"+r.URL.RawQuery)
			w.WriteHeader(302)
		},
		"echo in an invalid redirect": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://%zz?"+r.URL.RawQuery)
			w.WriteHeader(302)
		},
		"status": status(403),
		"reset":  reset,
		"circle": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		},
		"slow": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	}
	for name, serve := range leaks {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, serve)
			f := testFetcher(t, p.Server, nil)
			f.Timeout = 100 * time.Millisecond
			body, _, err := f.get(t.Context(), request{
				url: p.URL, secret: url.Values{"securityToken": {key}}, header: http.Header{"Auth-Token": {key}},
			})
			if err == nil {
				var text struct{}
				err = decode(append(body, '!'), &text)
			}
			if err == nil {
				t.Fatal("expected an error")
			}
			for ; err != nil; err = errors.Unwrap(err) {
				if s := fmt.Sprintf("%v %+v", err, err); strings.Contains(s, "s3same") ||
					strings.Contains(s, "securityToken") {
					t.Errorf("%T contains the key or the complete URL: %s", err, s)
				}
			}
		})
	}
	f := newFetcher(Reach{}, false)
	if _, err := f.target(request{url: "https://user:s3same@[::1/%zz"}); err == nil ||
		strings.Contains(err.Error(), "s3same") {
		t.Errorf("target() of an invalid URL: %v", err)
	}
}

// TestPackedAnswers verifies that the limit also applies to a response that is only large after decompression.
func TestPackedAnswers(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(make([]byte, 4*dial.MaxBody)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	})
	if _, _, err := testFetcher(t, p.Server, nil).get(t.Context(), request{url: p.URL}); err == nil ||
		dial.ReasonOf(err) != dial.ReasonSize {
		t.Errorf("got %v", err)
	}
}

// TestRedirectsAreNotFollowed verifies that redirects are errors even on the same server, because the additional
// request would not be counted.
func TestRedirectsAreNotFollowed(t *testing.T) {
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() != "kubenergy" || r.Header.Get("Accept") != "application/json" {
			t.Errorf("unexpected User-Agent %q or Accept %q", r.UserAgent(), r.Header.Get("Accept"))
		}
		http.Redirect(w, r, "/new", http.StatusMovedPermanently)
	})
	f := testFetcher(t, p.Server, nil)
	booked := 0
	f.reserve = func(context.Context) error { booked++; return nil }
	_, _, err := f.get(t.Context(), request{url: p.URL + "/old"})
	if err == nil || dial.ReasonOf(err) != dial.ReasonAddress || !strings.Contains(err.Error(), p.URL) {
		t.Errorf("got %v, want an error that contains %s", err, p.URL)
	}
	if p.requests.Load() != 1 || booked != 1 {
		t.Errorf("%d requests and %d reservations, want one", p.requests.Load(), booked)
	}
}

// TestPrivateIsNotLoopback verifies that a source with private addresses allowed cannot reach the controller
// itself.
func TestPrivateIsNotLoopback(t *testing.T) {
	p := newProvider(t, description("{}"))
	if _, _, err := newFetcher(Reach{}, true).get(t.Context(), request{url: p.URL}); err == nil ||
		dial.ReasonOf(err) != dial.ReasonAddress {
		t.Errorf("got %v", err)
	}
}

func TestKeyFolder(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "other")
	for path, text := range map[string]string{
		filepath.Join(dir, "em"): " sesame\n", filepath.Join(dir, "big"): strings.Repeat("x", maxKey+1),
		outside: "not yours",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Skip("symbolic links are not supported")
	}
	if key, err := KeyFolder(dir).Key("em"); err != nil || key != "sesame" {
		t.Errorf("got %q, %v", key, err)
	}
	for _, name := range []string{"absent", "big", "link", "../" + filepath.Base(outside), outside, "", "."} {
		if key, err := KeyFolder(dir).Key(name); err == nil {
			t.Errorf("Key(%q) = %q, want an error", name, key)
		} else if strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), outside) {
			t.Errorf("Key(%q): the error contains the path: %v", name, err)
		}
	}
	if _, err := KeyFolder("").Key("em"); err == nil {
		t.Error("Key() without a directory succeeded, want an error")
	}
}
