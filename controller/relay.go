package controller

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
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// relay passes requests on to the replica that leads. What is drawn now is known where batches arrive, so they all arrive
// at one replica; the others are there for when it dies. Who asks is found out by the one who answers.
type relay struct {
	client    client.Client // reads from the API server, not from a cache
	namespace string
	port      string
	name      string // that the leader's certificate is for
	trust     func(ctx context.Context, c client.Client, namespace string) (*x509.CertPool, error)
	now       func() time.Time
	log       *slog.Logger

	mu     sync.Mutex
	looked time.Time
	leader *leader
}

// leader is the replica that requests are passed on to.
type leader struct {
	pod   string
	proxy *httputil.ReverseProxy
	close func()
}

const (
	leaderKnownFor = 5 * time.Second
	retryRelayed   = "2" // seconds: a Lease that nobody renews runs out after 15
)

var errNoLeader = errors.New("no replica leads")

// ServeHTTP implements http.Handler.
func (r *relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	// Two replicas that each believe the other to lead would pass a request on for ever.
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

// relayedHeader marks what was passed on. It grants nothing.
const relayedHeader = "X-Kubenergy-Relayed"

func (r *relay) away(w http.ResponseWriter, err error) {
	r.log.Warn("a request cannot be passed on to the leader", "error", err)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", retryRelayed)
	w.Header().Set("Connection", "close") // the next one may find the leader itself
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"error":"the replica that leads does not answer"}` + "\n"))
}

// find returns the replica that holds the Lease.
func (r *relay) find(ctx context.Context) (*leader, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != nil && r.now().Sub(r.looked) < leaderKnownFor {
		return r.leader, nil
	}
	var lease coordinationv1.Lease
	if err := r.client.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: leaseName}, &lease); err != nil {
		return nil, fmt.Errorf("reading the Lease: %w", err)
	}
	r.looked = r.now()
	if lease.Spec.HolderIdentity == nil {
		return nil, errNoLeader
	}
	// controller-runtime's identity is the host's name, which is the pod's, and something random.
	pod, _, ok := strings.Cut(*lease.Spec.HolderIdentity, "_")
	if !ok || pod == "" {
		return nil, errNoLeader
	}
	if r.leader != nil && r.leader.pod == *lease.Spec.HolderIdentity {
		return r.leader, nil
	}
	var p v1.Pod
	if err := r.client.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: pod}, &p); err != nil {
		return nil, fmt.Errorf("reading the leader's pod: %w", err)
	}
	if p.Status.PodIP == "" {
		return nil, errNoLeader
	}
	roots, err := r.trust(ctx, r.client, r.namespace)
	if err != nil {
		return nil, err
	}
	if r.leader != nil {
		r.leader.close()
	}
	r.leader = r.to(*lease.Spec.HolderIdentity, net.JoinHostPort(p.Status.PodIP, r.port), roots)
	return r.leader, nil
}

func (r *relay) to(identity, address string, roots *x509.CertPool) *leader {
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: r.name},
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 5 * time.Second, ForceAttemptHTTP2: true,
	}
	target := &url.URL{Scheme: "https", Host: address}
	return &leader{pod: identity, close: transport.CloseIdleConnections, proxy: &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Set(relayedHeader, "true")
		},
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			r.forget(identity)
			r.away(w, err)
		},
	}}
}

// forget has the next request look for a leader anew.
func (r *relay) forget(identity string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != nil && r.leader.pod == identity {
		r.looked = time.Time{}
	}
}

// publishedAuthorities are the certificates of all replicas, as they tell them.
func publishedAuthorities(ctx context.Context, c client.Client, namespace string) (*x509.CertPool, error) {
	var m v1.ConfigMap
	if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: authorityName}, &m); err != nil {
		return nil, fmt.Errorf("reading what replicas are known by: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(m.Data[authorityKey])) {
		return nil, errors.New("the ConfigMap " + authorityName + " holds no certificate")
	}
	return roots, nil
}
