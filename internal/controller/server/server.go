package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

type server struct {
	Config
	mux     *http.ServeMux
	absent  http.Handler  // handles requests without a matching route
	queries chan struct{} // semaphore of concurrent ledger queries
	mu      sync.Mutex    // guards updates of callers
	callers *lru.Cache    // semaphores of concurrent ledger queries, by caller
	large   chan struct{} // semaphore of responses that may need 100 MB of memory, one at a time
	audits  chan struct{}
	cluster clusterCache
	sidecar *sidecar
	counted *counted
	openapi []byte
}

// New returns the handler of all routes.
func New(c Config) http.Handler {
	s := &server{
		Config: c, mux: http.NewServeMux(), sidecar: &sidecar{
			began: c.Now(), boot: "sidecar-" + rand.Text(), nodes: map[string]*sidecarNode{},
		},
		callers: lru.New(maxCallers), queries: make(chan struct{}, maxQueries), large: make(chan struct{}, 1),
		audits: make(chan struct{}, 1), cluster: clusterCache{turn: make(chan struct{}, 1)},
		counted: newCounted(c.Registerer), openapi: document(),
	}
	all := routes()
	for i := range all {
		s.mux.Handle(all[i].method+" "+all[i].path, s.handler(&all[i]))
	}
	s.absent = s.Gate.Require(http.HandlerFunc(s.notFound), nothing)
	s.mux.Handle("/", s.absent)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Strict-Transport-Security", "max-age=31536000")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Authorization, X-Kubenergy-Token, Accept")
	seen := &seen{ResponseWriter: w}
	defer s.recover(seen, r)
	// The mux would redirect to the clean path, which would reveal existing routes to unauthenticated clients.
	if !isClean(r.URL.Path) || r.Method == http.MethodConnect {
		s.absent.ServeHTTP(seen, r)
		return
	}
	s.mux.ServeHTTP(seen, r)
}

// isClean reports whether a path is in the form to which http.ServeMux would redirect other forms.
func isClean(p string) bool {
	c := path.Clean(p)
	return p == c || p == c+"/" && c != "/"
}

// recover limits the effect of a panic to a single response and hides its details from the client.
func (s *server) recover(w *seen, r *http.Request) {
	what := recover()
	if what == nil {
		return
	}
	if err, ok := what.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(what)
	}
	panics.Note("api")
	s.Log.Error("Panic while handling a request", "method", r.Method, "path", shortened(r.URL.Path), "panic",
		fmt.Sprint(what), "stack", string(debug.Stack()))
	if w.status == 0 {
		writeError(w, &failure{status: http.StatusInternalServerError, text: "internal error"})
	}
}

// shortened truncates text from clients to 200 bytes before it is logged.
func shortened(text string) string { return humanize.Truncated(text, 200) }

// seen is an http.ResponseWriter that records the response status, or 0 if no response has been started.
type seen struct {
	http.ResponseWriter
	status int
}

func (w *seen) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *seen) Write(data []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	return w.ResponseWriter.Write(data)
}

// Unwrap returns the wrapped writer. It is called by [http.ResponseController].
func (w *seen) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// nothing requires no permissions except for a valid token.
func nothing(*http.Request) []access.Attributes { return nil }

func (s *server) handler(rt *route) http.Handler {
	if rt.own {
		return s.counted.of(rt, s.Batches)
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(rt.timeout, usualPatience))
		defer cancel()
		r = r.WithContext(ctx)
		if rt.body != nil {
			r.Body = http.MaxBytesReader(w, r.Body, rt.body.most)
		}
		q, err := readQuery(rt, r, s.Now())
		if err == nil {
			err = rt.serve(s, w, r, q)
		}
		if err != nil {
			s.explain(w, r, rt, err)
		}
	})
	return s.counted.of(rt, s.Gate.Require(answer, rt.may))
}

// notFound handles authenticated requests that no route matches: 405 if the path exists for another method,
// otherwise 404.
func (s *server) notFound(w http.ResponseWriter, r *http.Request) {
	var allow []string
	if isClean(r.URL.Path) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if method == r.Method || r.Method == http.MethodHead && method == http.MethodGet {
				continue
			}
			probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
			if _, pattern := s.mux.Handler(probe); pattern != "/" && pattern != "" {
				allow = append(allow, method)
			}
		}
	}
	if len(allow) > 0 {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		writeError(w, fail(http.StatusMethodNotAllowed, "method not allowed, want %s", strings.Join(allow, " or ")))
		return
	}
	writeError(w, &failure{status: http.StatusNotFound, text: "no such route; see /openapi/v3.json"})
}

// acquire waits for permission to query the ledger, because each query may occupy a CPU and a lot of memory. The
// number of concurrent queries is limited in total and per caller, so that the queries of a busy caller wait for each
// other and do not delay other callers. If large is set, acquire also waits until no other large response is in
// progress. The caller must call done afterwards.
func (s *server) acquire(ctx context.Context, large bool) (done func(), err error) {
	caller := "" // the controller itself
	if u := access.UserOf(ctx); u != nil {
		caller = u.Username
	}
	if large {
		return enter(ctx, s.queriesOf(caller), s.large, s.queries)
	}
	return enter(ctx, s.queriesOf(caller), s.queries)
}

// limited calls query with the limits of acquire.
func (s *server) limited(ctx context.Context, large bool, query func() error) error {
	done, err := s.acquire(ctx, large)
	if err != nil {
		return err
	}
	defer done()
	return query()
}

// reply queries the ledger and writes the result as a JSON response. The limits of acquire apply until the result,
// which may be large, is encoded, but not while it is sent.
func (s *server) reply(w http.ResponseWriter, r *http.Request, large bool,
	query func(ctx context.Context) (any, error),
) error {
	var body []byte
	if err := s.limited(r.Context(), large, func() error {
		answer, err := query(r.Context())
		if err != nil {
			return askedBadly(err)
		}
		body, err = encodeJSON(answer)
		return err
	}); err != nil {
		return err
	}
	write(w, http.StatusOK, contentJSON, body)
	return nil
}

// queriesOf returns the semaphore of the concurrent queries of a caller, who may use half of all queries.
func (s *server) queriesOf(caller string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.callers.Get(caller); ok {
		return known.(chan struct{})
	}
	queries := make(chan struct{}, maxQueries/2)
	s.callers.Add(caller, queries)
	return queries
}

// enter acquires semaphores in the given order. The caller must call leave afterwards.
func enter(ctx context.Context, all ...chan struct{}) (leave func(), err error) {
	entered := 0
	leave = func() {
		for _, places := range all[:entered] {
			<-places
		}
	}
	for _, places := range all {
		select {
		case places <- struct{}{}:
			entered++
		case <-ctx.Done():
			leave()
			return nil, &failure{http.StatusServiceUnavailable, "too many concurrent queries", busyFor}
		}
	}
	return leave, nil
}

const busyFor = 5 * time.Second
