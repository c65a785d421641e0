package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// replica starts a server with its own certificate.
func replica(t *testing.T, h http.HandlerFunc) (server *httptest.Server, authority string) {
	t.Helper()
	certificate, key, err := sign(apiNames, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	server = httptest.NewUnstartedServer(h)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, string(certificate)
}

// TestRelay verifies that a replica forwards requests, including the caller's token, to the leader and to no other
// server.
func TestRelay(t *testing.T) {
	leading, authority := replica(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization")+" "+string(body))
	})
	stranger, _ := replica(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("an untrusted server received the header %s", r.Header.Get("Authorization"))
	})
	const ns = "kubenergy-system"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: leaseName}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}, Status: v1.PodStatus{PodIP: "127.0.0.1"}}
	api := fake.NewClientBuilder().WithObjects(lease, pod,
		&v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: AuthorityName},
			Data:       map[string]string{authorityKey: authority},
		},
	).WithStatusSubresource(pod).Build()
	pod.Status.PodIP = "127.0.0.1"
	if err := api.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	port := func(s *httptest.Server) string {
		_, port, err := net.SplitHostPort(s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	ask := func(r *Relay, headers ...string) (int, string) {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/batches?x=1",
			strings.NewReader("joules"))
		q.Header.Set("Authorization", "Bearer secret")
		for _, h := range headers {
			q.Header.Set(h, "true")
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		return w.Code, w.Body.String()
	}
	build := func(server *httptest.Server) *Relay {
		return New(Options{
			Client: api, Namespace: ns, Lease: leaseName, Port: port(server), Name: apiNames[0],
			Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		})
	}
	r := build(leading)
	if code, body := ask(r); code != http.StatusServiceUnavailable {
		t.Fatalf("without a leader: got status %d: %s", code, body)
	}
	now = now.Add(2 * leaderKnownFor)
	lead(t, api, lease, "a_b8f1")
	if code, body := ask(r); code != http.StatusOK || body != "POST /api/v1/batches?x=1 Bearer secret joules" {
		t.Fatalf("unexpected response of the leader %d: %s", code, body)
	}
	if code, _ := ask(r, relayedHeader); code != http.StatusServiceUnavailable {
		t.Errorf("a forwarded request was forwarded again: got status %d", code)
	}
	if code, _ := ask(build(stranger)); code != http.StatusServiceUnavailable {
		t.Errorf("a server with another certificate was accepted: got status %d", code)
	}
	leading.Close()
	if code, _ := ask(r); code != http.StatusServiceUnavailable {
		t.Errorf("a stopped leader: got status %d", code)
	}
	lead(t, api, lease, "gone_77")
	if code, _ := ask(r); code != http.StatusServiceUnavailable {
		t.Errorf("a leader without a pod: got status %d", code)
	}
}

// leaseName is the name of the Lease in tests.
const leaseName = "kubenergy-controller"

// trustedFile returns the name of a file with a certificate.
func trustedFile(t *testing.T) string {
	t.Helper()
	own, err := SignOnce(t.TempDir(), apiNames, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return own.CertFile
}

func lead(t *testing.T, api client.Client, lease *coordinationv1.Lease, holder string) {
	t.Helper()
	if err := api.Get(context.Background(), client.ObjectKeyFromObject(lease), lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec.HolderIdentity = &holder
	if err := api.Update(context.Background(), lease); err != nil {
		t.Fatal(err)
	}
}

// TestRelayWhileTheAPIServerHangs verifies that requests wait only briefly for an API server that hangs, that they
// share a lookup, and that a known leader is still used.
func TestRelayWhileTheAPIServerHangs(t *testing.T) {
	const ns = "kubenergy-system"
	holder := "a_b8f1"
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: leaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}, Status: v1.PodStatus{PodIP: "127.0.0.1"}}
	for name, known := range map[string]bool{"known leader": true, "unknown leader": false} {
		synctest.Test(t, func(t *testing.T) {
			var hangs atomic.Bool
			var reads atomic.Int64
			api := fake.NewClientBuilder().WithObjects(lease.DeepCopy(),
				pod.DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					options ...client.GetOption,
				) error {
					reads.Add(1)
					if hangs.Load() {
						<-ctx.Done()
						return ctx.Err()
					}
					return c.Get(ctx, key, o, options...)
				},
			}).Build()
			r := New(Options{
				Client: api, Namespace: ns, Lease: leaseName, Port: "1", Name: apiNames[0], Trust: trustedFile(t),
				Now: time.Now,
				Log: slog.New(slog.DiscardHandler),
			})
			if known {
				if _, err := r.find(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			bubble.Advance(2 * leaderKnownFor)
			hangs.Store(true)
			began, before := time.Now(), reads.Load()
			const many = 100
			found := make(chan error, many)
			for range many {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					l, err := r.find(ctx)
					if err == nil && l.pod != holder {
						err = errors.New(l.pod)
					}
					found <- err
				}()
			}
			for range many {
				if err := <-found; (err == nil) != known {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("%s: %d requests took %v", name, many, took)
			}
			if n := reads.Load() - before; n > 2 {
				t.Errorf("%s: got %d lookups, want at most 2", name, n)
			}
			hangs.Store(false)
			bubble.Advance(2 * leaderKnownFor)
			if _, err := r.find(t.Context()); err != nil {
				t.Errorf("%s: after the recovery: %v", name, err)
			}
		})
	}
}

// TestRelayForgetsWhoResigned verifies that requests are no longer forwarded to a leader that has resigned.
func TestRelayForgetsWhoResigned(t *testing.T) {
	const ns = "kubenergy-system"
	holder := "a_b8f1"
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: leaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}, Status: v1.PodStatus{PodIP: "127.0.0.1"}}
	api := fake.NewClientBuilder().WithObjects(lease, pod).Build()
	now := time.Now()
	r := New(Options{
		Client: api, Namespace: ns, Lease: leaseName, Port: "1", Name: apiNames[0], Trust: trustedFile(t),
		Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
	})
	if _, err := r.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	lead(t, api, lease, "")
	now = now.Add(2 * leaderKnownFor)
	for range 2 {
		if _, err := r.find(t.Context()); !errors.Is(err, errNoLeader) {
			t.Errorf("without a leader: got error %v", err)
		}
	}
}
