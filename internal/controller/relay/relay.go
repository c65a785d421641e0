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
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/internal/controller/access"
)

// Options are what a Relay needs.
type Options struct {
	Client    client.Client // reads from the API server, not from a cache
	Namespace string
	Lease     string // whose holder leads
	Port      string
	Name      string // that the leader's certificate is for
	// Trust is the file with the certificates that replicas are verified by; "": they publish their own.
	Trust string
	Now   func() time.Time
	Log   *slog.Logger
}

// A Relay passes requests on to the replica that leads. What is drawn now is known where batches arrive, so they all
// arrive at one replica; the others are there for when it dies. The replica that answers finds out who asks.
type Relay struct {
	o     Options
	looks singleflight.Group // one at a time, for all requests that wait
	last  atomic.Pointer[answer]
}

// answer is which replica leads, or why none is known. It counts until a moment; then the Lease is read again.
type answer struct {
	leader *leader // nil: none is known
	why    error
	until  time.Time
}

// New returns a Relay that knows no leader.
func New(o Options) *Relay {
	r := &Relay{o: o}
	r.last.Store(&answer{})
	return r
}

// leader is the replica that requests are passed on to.
type leader struct {
	pod   string
	proxy *httputil.ReverseProxy
	close func()
}

const (
	leaderKnownFor  = 5 * time.Second
	noLeaderFor     = time.Second
	leaderFoundIn   = 2 * time.Second // or not: the API server is away
	leaderReachedIn = 5 * time.Second
	retryRelayed    = 2 * time.Second // a Lease that is not renewed runs out after 15
)

var errNoLeader = errors.New("no replica leads")

// ServeHTTP implements http.Handler.
func (r *Relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
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

func (r *Relay) away(w http.ResponseWriter, err error) {
	r.o.Log.Warn("a request cannot be passed on to the leader", "error", err)
	w.Header().Set("Connection", "close") // the next one may find the leader itself
	access.Busy(w, http.StatusServiceUnavailable, retryRelayed, "the replica that leads does not answer")
}

// find returns the replica that holds the Lease. No request waits for another's question, nor for long for an API
// server that does not answer; meanwhile the one that led goes on being asked, as it may go on leading.
func (r *Relay) find(ctx context.Context) (*leader, error) {
	if a := r.last.Load(); r.o.Now().Before(a.until) {
		return a.leader, a.why
	}
	return access.AnswerOf[*leader](ctx, r.looks.DoChan("", func() (any, error) {
		a := r.last.Load()
		if !r.o.Now().Before(a.until) { // nor has another request looked since
			// A request that is given up must not take the answer from the others.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaderFoundIn)
			defer cancel()
			a = r.look(ctx, a.leader)
		}
		return a.leader, a.why
	}))
}

// look asks which replica leads, and notes that. It is called by one at a time.
func (r *Relay) look(ctx context.Context, last *leader) *answer {
	holder, err := r.holder(ctx)
	a := &answer{leader: last}
	switch {
	case err == nil && (last == nil || last.pod != holder):
		a.leader, a.why = r.reach(ctx, holder)
	case errors.Is(err, errNoLeader), err != nil && last == nil: // the last one has resigned, or none was known
		a.leader, a.why = nil, err
	case err != nil:
		r.o.Log.Warn("asking who leads: the one that did is still asked", "error", err)
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

// holder returns who holds the Lease.
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

// reach returns where who holds the Lease is.
func (r *Relay) reach(ctx context.Context, holder string) (*leader, error) {
	// controller-runtime's identity is the host's name, which is the pod's, and something random.
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

// forget has the next request look for a leader anew.
func (r *Relay) forget(identity string) {
	if a := r.last.Load(); a.leader != nil && a.leader.pod == identity {
		r.last.CompareAndSwap(a, &answer{leader: a.leader})
	}
}

// authorities are the certificates that replicas are verified by: those of the file, else those that they publish.
func (r *Relay) authorities(ctx context.Context) (*x509.CertPool, error) {
	text, from := []byte(nil), r.o.Trust
	if r.o.Trust != "" {
		var err error
		if text, err = os.ReadFile(r.o.Trust); err != nil {
			return nil, fmt.Errorf("reading what replicas are known by: %w", err)
		}
	} else {
		var m v1.ConfigMap
		key := types.NamespacedName{Namespace: r.o.Namespace, Name: AuthorityName}
		if err := r.o.Client.Get(ctx, key, &m); err != nil {
			return nil, fmt.Errorf("reading what replicas are known by: %w", err)
		}
		text, from = []byte(m.Data[authorityKey]), "the ConfigMap "+AuthorityName
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate", from)
	}
	return roots, nil
}
