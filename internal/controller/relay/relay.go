package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/internal/controller/access"
)

// Options configures a Relay.
type Options struct {
	Client    client.Client // must not read from a cache
	Namespace string
	Lease     string // name of the leader election Lease
	Port      string
	Name      string // DNS name in the leader's certificate
	// Trust is the file with the CA certificates of the replicas. If empty, the published certificates are used.
	Trust string
	Now   func() time.Time
	Log   *slog.Logger
}

// A Relay forwards requests to the leader. The current power is known only to the replica that receives the
// batches, so all requests are served by a single replica; the others take over if it fails. The serving replica
// authenticates the requests. A Relay is safe for concurrent use.
type Relay struct {
	o     Options
	looks singleflight.Group // deduplicates concurrent lookups
	last  atomic.Pointer[answer]
}

// answer is the result of a lookup of the leader. The Lease is read again after it has expired.
type answer struct {
	leader *leader // nil if unknown
	why    error
	until  time.Time
}

// New returns a Relay without a known leader.
func New(o Options) *Relay {
	r := &Relay{o: o}
	r.last.Store(&answer{})
	return r
}

// leader is the replica that receives the requests.
type leader struct {
	pod   string
	proxy *httputil.ReverseProxy
	close func()
}

const (
	leaderKnownFor  = 5 * time.Second
	noLeaderFor     = time.Second
	leaderFoundIn   = 2 * time.Second // timeout of a lookup if the API server is unavailable
	leaderReachedIn = 5 * time.Second
	retryRelayed    = 2 * time.Second // a Lease that is not renewed expires after 15 s
)

var errNoLeader = errors.New("there is no leader")

// ServeHTTP implements http.Handler.
func (r *Relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	// Two replicas that consider each other the leader would otherwise forward a request in a loop.
	if q.Header.Get(relayedHeader) != "" {
		r.away(w, errNoLeader)
		return
	}
	l, err := r.find(q.Context())
	if err != nil {
		r.away(w, err)
		return
	}
	l.proxy.ServeHTTP(w, q)
}

// relayedHeader marks forwarded requests. It does not grant any permission.
const relayedHeader = "X-Kubenergy-Relayed"

func (r *Relay) away(w http.ResponseWriter, err error) {
	r.o.Log.Warn("Failed to forward a request to the leader", "error", err)
	w.Header().Set("Connection", "close") // the next connection may reach the leader directly
	access.Busy(w, http.StatusServiceUnavailable, retryRelayed, "the leader does not respond")
}

// find returns the holder of the Lease. Concurrent requests share a lookup with a short timeout. While the API
// server is unavailable, the last known leader is returned, because it may still be the leader.
func (r *Relay) find(ctx context.Context) (*leader, error) {
	if a := r.last.Load(); r.o.Now().Before(a.until) {
		return a.leader, a.why
	}
	return access.AnswerOf[*leader](ctx, r.looks.DoChan("", func() (any, error) {
		a := r.last.Load()
		if !r.o.Now().Before(a.until) { // unless another request has just completed a lookup
			// Canceling one request must not cancel the shared lookup.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaderFoundIn)
			defer cancel()
			a = r.look(ctx, a.leader)
		}
		return a.leader, a.why
	}))
}

// look looks up the leader and stores the result. It must not be called concurrently.
func (r *Relay) look(ctx context.Context, last *leader) *answer {
	holder, err := r.holder(ctx)
	a := &answer{leader: last}
	switch {
	case err == nil && (last == nil || last.pod != holder):
		a.leader, a.why = r.reach(ctx, holder)
	case errors.Is(err, errNoLeader), err != nil && last == nil: // the last leader has resigned, or none was known
		a.leader, a.why = nil, err
	case err != nil:
		r.o.Log.Warn("Failed to look up the leader, using the last known one", "error", err)
	}
	if last != nil && last != a.leader {
		last.close()
	}
	known := leaderKnownFor
	if a.leader == nil {
		known = noLeaderFor
	}
	a.until = r.o.Now().Add(known)
	r.last.Store(a)
	return a
}

// holder returns the identity of the holder of the Lease.
func (r *Relay) holder(ctx context.Context) (string, error) {
	var lease coordinationv1.Lease
	if err := r.o.Client.Get(ctx, types.NamespacedName{Namespace: r.o.Namespace, Name: r.o.Lease}, &lease); err != nil {
		return "", fmt.Errorf("reading the Lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errNoLeader
	}
	return *lease.Spec.HolderIdentity, nil
}

// reach returns the leader with the given identity.
func (r *Relay) reach(ctx context.Context, holder string) (*leader, error) {
	// The identity in controller-runtime consists of the host name, i.e. the pod name, and a random suffix.
	pod, _, ok := strings.Cut(holder, "_")
	if !ok || pod == "" {
		return nil, errNoLeader
	}
	var p v1.Pod
	if err := r.o.Client.Get(ctx, types.NamespacedName{Namespace: r.o.Namespace, Name: pod}, &p); err != nil {
		return nil, fmt.Errorf("reading the leader's pod: %w", err)
	}
	if p.Status.PodIP == "" {
		return nil, errNoLeader
	}
	roots, err := r.authorities(ctx)
	if err != nil {
		return nil, err
	}
	return r.to(holder, net.JoinHostPort(p.Status.PodIP, r.o.Port), roots), nil
}

func (r *Relay) to(identity, address string, roots *x509.CertPool) *leader {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: leaderReachedIn}).DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: r.o.Name},
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: leaderReachedIn,
		ForceAttemptHTTP2: true,
	}
	target := &url.URL{Scheme: "https", Host: address}
	return &leader{pod: identity, close: transport.CloseIdleConnections, proxy: &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Set(relayedHeader, "true")
		},
		ErrorLog: slog.NewLogLogger(r.o.Log.Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			r.forget(identity)
			r.away(w, err)
		},
	}}
}

// forget makes the next request look up the leader again.
func (r *Relay) forget(identity string) {
	if a := r.last.Load(); a.leader != nil && a.leader.pod == identity {
		r.last.CompareAndSwap(a, &answer{leader: a.leader})
	}
}

// authorities returns the CA certificates of the replicas, from the file if configured, otherwise the published
// ones.
func (r *Relay) authorities(ctx context.Context) (*x509.CertPool, error) {
	if r.o.Trust != "" {
		return certutil.NewPool(r.o.Trust)
	}
	var m v1.ConfigMap
	key := types.NamespacedName{Namespace: r.o.Namespace, Name: AuthorityName}
	if err := r.o.Client.Get(ctx, key, &m); err != nil {
		return nil, fmt.Errorf("reading the CA certificates of the replicas: %w", err)
	}
	roots, err := certutil.NewPoolFromBytes([]byte(m.Data[authorityKey]))
	if err != nil {
		return nil, fmt.Errorf("reading the ConfigMap %s: %w", AuthorityName, err)
	}
	return roots, nil
}
