package access

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"testing"
	"time"
	"weak"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func TestBucketsAreBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := newBuckets(Allowance{PerSecond: 1, AtOnce: 1})
	for i := range maxBuckets + 5000 {
		b.allow(strconv.Itoa(i), now)
	}
	if n := b.each.Len(); n > maxBuckets {
		t.Errorf("got %d buckets, want at most the maximum", n)
	}
	last := strconv.Itoa(maxBuckets + 4999)
	if _, ok := b.allow(last, now); ok || !b.empty(last, now) {
		t.Error("the bucket of the last caller was removed too early")
	}
	if now = now.Add(time.Minute); b.empty(last, now) {
		t.Error("a bucket is not refilled")
	}
	before := b.each.Len()
	if b.empty("another", now); b.each.Len() > before {
		t.Error("a bucket was created for a caller without requests")
	}
}

// reviewer accepts every token and includes it in the response, as the API server does.
type reviewer struct {
	authenticationclient.TokenReviewInterface
	last weak.Pointer[authenticationv1.TokenReview]
}

func (r *reviewer) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions,
) (*authenticationv1.TokenReview, error) {
	answer := review.DeepCopy()
	answer.Status.Authenticated, answer.Status.User.Username = true, "jane"
	r.last = weak.Make(answer)
	return answer, nil
}

// TestNoTokenIsRemembered verifies that cached users do not retain the review, because it contains the token.
func TestNoTokenIsRemembered(t *testing.T) {
	r := &reviewer{}
	g := NewGate(Options{Tokens: r, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	u, err := g.Authenticate(t.Context(), "token")
	if err != nil || u.Username != "jane" {
		t.Fatalf("%v, %v", u, err)
	}
	kit.Eventually(t, 10*time.Second, "the review was garbage collected", func() bool { // after its goroutine ends
		runtime.GC()
		return r.last.Value() == nil
	})
	runtime.KeepAlive(g)
}

func TestPeers(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1", "[::ffff:192.0.2.1]:2": "192.0.2.1", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1": "fe80::/64", "pipe": "", "x:1": "",
	} {
		if got := peerOf(remote); got != want {
			t.Errorf("%s: %q, want %q", remote, got, want)
		}
	}
}

func FuzzClaims(f *testing.F) {
	f.Add("e30.eyJhdWQiOlsiYSJdLCJleHAiOjF9.c2ln")
	f.Add("e30.eyJhdWQiOiJhIiwiZXhwIjoxZTMwMH0.c2ln")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		defer memtest.Limit(t, 100*len(token))()
		c := readClaims(token)
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if c.before(at).After(at) {
			t.Error("the expiry of a token extends the cache lifetime")
		}
	})
}

func FuzzHosts(f *testing.F) {
	f.Add([]byte("hosts:\n- node: rack1\n  tokenSHA256: " +
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n  maxPowerWatts: 800\n"))
	f.Add([]byte(`{"hosts":[{"node":"a","tokenSHA256":"zz"}]}`))
	f.Add([]byte("hosts: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		all, err := parseHosts(data)
		if err != nil {
			return
		}
		if len(all.byNode) > len(all.byToken) {
			t.Errorf("got %d hosts with %d tokens", len(all.byNode), len(all.byToken))
		}
		for name, h := range all.byNode {
			if name != h.Node || !plausibleName(name, maxNodeName) || !(h.MaxPower >= 0) {
				t.Errorf("%+v", h)
			}
		}
	})
}

// TestAReviewThatPanics verifies that a panic during a review returns an error and does not affect the next review.
func TestAReviewThatPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	g := NewGate(Options{Tokens: nil, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if _, err := g.Authenticate(t.Context(), "token"); !errors.Is(err, errPanicked) {
		t.Error(err)
	}
	g.o.Tokens = &reviewer{}
	if u, err := g.Authenticate(t.Context(), "token"); err != nil || u.Username != "jane" || panics.Note("access") != 2 {
		t.Error(u, err)
	}
}
