package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/internal/daemon"
)

// Limits and timeouts of the HTTP server.
const (
	maxConnections = 20_000 // agents and schedulers use one connection each
	maxOfPeer      = 2_500  // per remote address, so that one client cannot exhaust all connections
	writeWithin    = auditWithin + 30*time.Second
	idleFor        = 3 * time.Minute // longer than the interval between batches, which agents send over HTTP/1.1
	idleHTTP2      = 10 * time.Second
)

// Serve listens on an address until ctx is done and then waits for active requests to finish.
func Serve(ctx context.Context, addr string, handler http.Handler, config *tls.Config, log *slog.Logger) error {
	listener, err := daemon.Listen(addr, maxConnections, maxOfPeer)
	if err != nil {
		return fmt.Errorf("serving the HTTP interface: %w", err)
	}
	return ServeOn(ctx, listener, handler, config, log)
}

// ServeOn is like Serve, but uses an existing listener with a limited number of connections. It closes the
// listener.
func ServeOn(ctx context.Context, listener net.Listener, handler http.Handler, config *tls.Config,
	log *slog.Logger,
) error {
	server := daemon.NewServer(handler, log)
	server.WriteTimeout, server.IdleTimeout = writeWithin, idleFor
	server.TLSConfig = config.Clone()
	server.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
	if err := http2.ConfigureServer(server, &http2.Server{
		MaxConcurrentStreams: daemon.MaxStreams,
		IdleTimeout:          idleHTTP2, // also for unauthenticated connections without a request
	}); err != nil {
		return fmt.Errorf("configuring HTTP/2: %w", err)
	}
	if err := daemon.Serve(ctx, tls.NewListener(listener, server.TLSConfig), server); err != nil {
		return fmt.Errorf("serving the HTTP interface: %w", err)
	}
	return nil
}

// Certificates returns a TLS configuration that loads the certificate from two files for each handshake. If the files
// cannot be loaded, for example while they are being replaced, the previous certificate remains in use. The error
// reports that the initial load failed.
func Certificates(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	var last atomic.Pointer[tls.Certificate]
	failing := rate.Sometimes{Interval: time.Minute}
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		previous := last.Load()
		switch {
		case err == nil:
			last.Store(&pair)
			return &pair, nil
		case previous == nil:
			return nil, fmt.Errorf("reading the certificate of the HTTP interface: %w", err)
		}
		failing.Do(func() {
			log.Warn("Failed to reload the certificate, continuing with the previous one", "error", err)
		})
		return previous, nil
	}
	_, err := get(nil)
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get}, err
}
