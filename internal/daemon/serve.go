// Package daemon provides the common parts of all long-running processes: listeners with connection limits, HTTP
// servers with timeouts, and heartbeats for liveness probes. All listeners and servers must be created by this
// package, which test/layers verifies.
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"
)

// Limits of a server. Callers that need a different value set the field of the server before serving.
const (
	HandshakeTimeout = 5 * time.Second  // also the timeout for reading request headers
	requestTimeout   = time.Minute      // timeout for reading a request including its body
	responseTimeout  = time.Minute      // timeout for writing a response, from the end of the request header
	ShutdownTimeout  = 10 * time.Second // timeout for responses in progress

	// idleTimeout is the timeout of idle connections. It exceeds the 90 s after which Go clients close idle
	// connections, so that no request is sent on a connection that the server is closing.
	idleTimeout = 2 * time.Minute

	MaxStreams     = 100 // concurrent HTTP/2 or gRPC streams per connection
	maxHeaderBytes = 64 << 10
)

// Listen listens on a TCP address with the limits of [Limit].
func Listen(address string, connections, perPeer int) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return Limit(l, connections, perPeer), nil
}

// Loopback reports whether address (host:port) is a loopback address. The only host name it accepts is localhost.
func Loopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// NewServer returns a server with timeouts for each step of a request. It logs client errors at debug level so that
// clients cannot fill the log, and logs panics of h as errors.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: logPanics(h, log), ReadHeaderTimeout: HandshakeTimeout, ReadTimeout: requestTimeout,
		WriteTimeout: responseTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: MaxStreams},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// logPanics logs a panic of h and makes the server close the connection.
func logPanics(h http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if what := recover(); what != nil {
				if what != http.ErrAbortHandler {
					log.Error("Panic while serving a request", "panic", what, "stack", string(debug.Stack()))
				}
				panic(http.ErrAbortHandler)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

// Serve serves on l until ctx is done, and then waits up to 10 s for the responses in progress. It closes l.
func Serve(ctx context.Context, l net.Listener, s *http.Server) error {
	return Run(ctx, s, func() error { return s.Serve(l) })
}

// Run is like Serve, but calls the given function to serve with s.
func Run(ctx context.Context, s *http.Server, serve func() error) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), ShutdownTimeout)
	defer cancel()
	err := s.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.Close()
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
