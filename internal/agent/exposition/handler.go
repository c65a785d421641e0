package exposition

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"golang.org/x/time/rate"
)

const (
	// maxScrapes is the maximum number of concurrent scrapes. Each may hold a different page in memory until it
	// completes.
	maxScrapes = 8
	// scrapeTimeout is the timeout for reading a page, which equals Prometheus' default.
	scrapeTimeout = 10 * time.Second
	// forwardTimeout is the timeout for a delivery requested by a client.
	forwardTimeout = 30 * time.Second
)

// ServeHTTP responds with the current metrics. Clients do not block each other, because each gets its own page.
func (e *Exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case e.scrapes <- struct{}{}:
		defer func() { <-e.scrapes }()
	default:
		http.Error(w, "too many concurrent scrapes", http.StatusServiceUnavailable)
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
	_, _ = w.Write(page) // an error means that the client disconnected
}

// setWriteDeadline sets the write deadline. It is a no-op without a connection, as in tests.
func setWriteDeadline(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// Routes are the HTTP routes of the agent.
type Routes struct {
	Metrics http.Handler // GET /metrics
	// Healthy returns an error if the agent is unhealthy: GET /healthz.
	Healthy func() error
	// Forward delivers all energy metered so far, and returns once it is acknowledged: POST /forward-metrics. It is
	// nil if batches are not pushed, and must be safe for concurrent use.
	Forward func(context.Context) error
	// TokenFile contains the bearer token required by all routes except /healthz. It is read for each request. If
	// empty, no token is required.
	TokenFile string
	Log       *slog.Logger // optional

	warn *rate.Sometimes // limits warnings about an unusable token file
}

// Handler returns a handler for the routes.
func (r Routes) Handler() http.Handler {
	r.Log, r.warn = cmp.Or(r.Log, slog.New(slog.DiscardHandler)), &rate.Sometimes{Interval: time.Minute}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", r.protect(r.Metrics))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, r.Healthy(), "ok") })
	mux.Handle("POST /forward-metrics", r.protect(http.HandlerFunc(r.forward)))
	return mux
}

func (r *Routes) forward(w http.ResponseWriter, req *http.Request) {
	if r.Forward == nil {
		http.Error(w, "batches are not pushed: --push-url is not set", http.StatusNotFound)
		return
	}
	setWriteDeadline(w, forwardTimeout+scrapeTimeout)
	ctx, cancel := context.WithTimeout(req.Context(), forwardTimeout)
	defer cancel()
	answer(w, r.Forward(ctx), "delivered")
}

// answer responds with the text well, or with the error on one line.
func answer(w http.ResponseWriter, err error, well string) {
	if err == nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(well + "\n"))
		return
	}
	reason := strings.Join(strings.Fields(err.Error()), " ")
	http.Error(w, reason[:min(len(reason), 500)], http.StatusServiceUnavailable)
}

// token returns the current content of the token file, or nil if it cannot be read or is empty.
func (r *Routes) token() []byte {
	text, err := os.ReadFile(r.TokenFile)
	text = bytes.TrimSpace(text)
	if err == nil && len(text) == 0 {
		err = errors.New("the file is empty")
	}
	if err == nil {
		return text
	}
	r.warn.Do(func() {
		r.Log.Warn("Denying all requests because the token file is unusable", "file", r.TokenFile, "err", err)
	})
	return nil
}

// protect returns a handler that requires the bearer token, unless no file is configured. It denies all requests if
// there is no token.
func (r *Routes) protect(h http.Handler) http.Handler {
	if r.TokenFile == "" {
		return h
	}
	r.token() // log a missing token at startup rather than at the first scrape
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		want := r.token()
		scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
		// Compare digests of equal length, so that the duration does not reveal the length of the token.
		a, b := sha256.Sum256(want), sha256.Sum256([]byte(strings.TrimSpace(token)))
		if len(want) > 0 && strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(a[:], b[:]) == 1 {
			h.ServeHTTP(w, req)
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "missing or invalid token", http.StatusUnauthorized)
	})
}
