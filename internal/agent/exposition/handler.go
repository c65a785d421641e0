package exposition

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/expfmt"
)

const (
	// maxScrapes is how many pages may be on their way at once. Each may be of another tick, and is kept as long.
	maxScrapes = 8
	// scrapeTimeout is how long a client may take to read a page: as Prometheus' default.
	scrapeTimeout = 10 * time.Second
	// forwardTimeout is how long a delivery may take for which a client waits.
	forwardTimeout = 30 * time.Second
)

// ServeHTTP answers with the page. A slow client makes no other wait: it reads a page of its own.
func (e *Exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case e.scrapes <- struct{}{}:
		defer func() { <-e.scrapes }()
	default:
		http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
		return
	}
	format, openMetrics := expfmt.NewFormat(expfmt.TypeTextPlain), expfmt.NewFormat(expfmt.TypeOpenMetrics)
	open := strings.HasPrefix(string(expfmt.NegotiateIncludingOpenMetrics(r.Header)), string(openMetrics))
	if open {
		format = openMetrics
	}
	page := e.page(open)
	h := w.Header()
	h.Set("Content-Type", string(format))
	h.Set("Content-Length", strconv.Itoa(len(page)))
	setWriteDeadline(w, scrapeTimeout)
	_, _ = w.Write(page) // an error says that the client has gone
}

// setWriteDeadline does nothing where there is no connection, as in tests.
func setWriteDeadline(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// Routes are what the agent answers. The zero value answers nothing.
type Routes struct {
	Metrics http.Handler // GET /metrics
	// Healthy returns why the agent is not well, nil while ticks happen: GET /healthz.
	Healthy func() error
	// Forward delivers everything metered so far and returns once that is acknowledged: POST /forward-metrics. nil:
	// nothing is pushed.
	Forward func(context.Context) error
	// TokenFile holds the bearer token that all but /healthz asks for, and is read anew for each request. "": none is
	// asked for.
	TokenFile string
	Log       *slog.Logger // nil: none
}

// Handler returns what serves the routes.
func (r Routes) Handler() http.Handler {
	forwarding := make(chan struct{}, 1)
	g := &guard{file: r.TokenFile, log: r.Log}
	if g.file != "" {
		g.token() // the log is to name a file that locks everyone out now, not at the first scrape
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/metrics" && r.Metrics != nil:
			if g.allows(w, req) && isMethod(w, req, http.MethodGet, http.MethodHead) {
				r.Metrics.ServeHTTP(w, req)
			}
		case req.URL.Path == "/healthz" && r.Healthy != nil:
			if isMethod(w, req, http.MethodGet, http.MethodHead) {
				answer(w, r.Healthy(), "ok")
			}
		case req.URL.Path == "/forward-metrics":
			switch {
			case !g.allows(w, req):
			case r.Forward == nil:
				http.Error(w, "nothing is pushed: no --push-url", http.StatusNotFound)
			case isMethod(w, req, http.MethodPost):
				r.forward(w, req, forwarding)
			}
		default:
			http.NotFound(w, req)
		}
	})
}

// forward lets one delivery happen after another: what the second client waits for may not be in the first one's.
func (r *Routes) forward(w http.ResponseWriter, req *http.Request, forwarding chan struct{}) {
	setWriteDeadline(w, forwardTimeout+scrapeTimeout)
	ctx, cancel := context.WithTimeout(req.Context(), forwardTimeout)
	defer cancel()
	select {
	case forwarding <- struct{}{}:
		defer func() { <-forwarding }()
	case <-ctx.Done():
		answer(w, ctx.Err(), "")
		return
	}
	answer(w, r.Forward(ctx), "delivered")
}

// answer says that all is well, or why not, in one line.
func answer(w http.ResponseWriter, err error, well string) {
	if err == nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(well + "\n"))
		return
	}
	reason := strings.Join(strings.Fields(err.Error()), " ")
	http.Error(w, reason[:min(len(reason), 500)], http.StatusServiceUnavailable)
}

func isMethod(w http.ResponseWriter, req *http.Request, methods ...string) bool {
	if slices.Contains(methods, req.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	return false
}

// A guard asks for a bearer token. A file that cannot be read, or is empty, locks everyone out.
type guard struct {
	file     string
	log      *slog.Logger
	warnedAt atomic.Int64 // when it last logged that the file is of no use, in nanoseconds of Unix; 0: never
}

const complaintPause = time.Minute

// token returns what the file holds now.
func (g *guard) token() []byte {
	text, err := os.ReadFile(g.file)
	text = bytes.TrimSpace(text)
	if err == nil && len(text) == 0 {
		err = errors.New("it is empty")
	}
	if err == nil {
		return text
	}
	now, last := time.Now().UnixNano(), g.warnedAt.Load()
	if g.log != nil && (last == 0 || now-last >= int64(complaintPause)) && g.warnedAt.CompareAndSwap(last, now) {
		g.log.Warn("no client may read metrics: there is no token to ask for", "file", g.file, "err", err)
	}
	return nil
}

func (g *guard) allows(w http.ResponseWriter, req *http.Request) bool {
	if g.file == "" {
		return true
	}
	want := g.token()
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if len(want) > 0 && strings.EqualFold(scheme, "Bearer") {
		// Digests are of one length, so that comparing them tells nothing of the token's.
		a, b := sha256.Sum256(want), sha256.Sum256([]byte(strings.TrimSpace(token)))
		if subtle.ConstantTimeCompare(a[:], b[:]) == 1 {
			return true
		}
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "no token, or a wrong one", http.StatusUnauthorized)
	return false
}
