// Package daemon holds what every long-running process of the project needs: listeners with a limit, HTTP servers with
// timeouts, and heartbeats for liveness checks. Nothing else opens a listener or makes a server: test/layers checks it.
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

// Limits of a server. Callers that need another value set the field of the server before they serve.
const (
	HandshakeTimeout = 5 * time.Second  // also for the header of a request
	requestTimeout   = time.Minute      // to read a request with its body
	responseTimeout  = time.Minute      // to write a response, from the end of the request's header
	ShutdownTimeout  = 10 * time.Second // for the responses in progress

	// idleTimeout is for a connection between two requests. It exceeds the 90 s for which clients in Go keep an idle
	// connection, so that no request meets a connection that the server is closing.
	idleTimeout = 2 * time.Minute

	MaxStreams     = 100 // concurrent HTTP/2 or gRPC calls of one connection
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

// Loopback reports whether address, host:port, is the machine's own. Of names, only localhost is.
func Loopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// NewServer returns a server that bounds how long a client can take for each step. Errors of clients are logged at
// debug level, because strangers could fill the log otherwise; panics of h are logged as errors.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: logPanics(h, log), ReadHeaderTimeout: HandshakeTimeout, ReadTimeout: requestTimeout,
		WriteTimeout: responseTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: MaxStreams},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// logPanics logs a panic of h and has the server close the connection.
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

// Serve serves on l, which it closes, until ctx ends. It then waits up to 10 s for the responses in progress.
func Serve(ctx context.Context, l net.Listener, s *http.Server) error {
	return Run(ctx, s, func() error { return s.Serve(l) })
}

// Run is Serve with a function that serves with s.
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
