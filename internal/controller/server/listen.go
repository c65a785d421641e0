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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubenergy/kubenergy/internal/daemon"
)

// What a server allows its callers.
const (
	maxConnections = 20_000 // an agent keeps one, and so do schedulers
	maxOfPeer      = 2_500  // of one address: one stranger leaves room for the others
	writeWithin    = auditWithin + 30*time.Second
	idleFor        = 3 * time.Minute // longer than between two batches, which agents send over HTTP/1.1
	idleHTTP2      = 10 * time.Second
)

// Serve answers on an address until ctx ends, and then lets those finish who are being answered. Without TLS only the
// machine itself is answered: neither the answers nor the tokens are for strangers.
func Serve(ctx context.Context, addr string, handler http.Handler, config *tls.Config, log *slog.Logger) error {
	if config == nil && !daemon.Loopback(addr) {
		return fmt.Errorf("serving the HTTP interface on %s: without TLS it is served on a loopback address only", addr)
	}
	listener, err := daemon.Listen(addr, maxConnections, maxOfPeer)
	if err != nil {
		return fmt.Errorf("serving the HTTP interface: %w", err)
	}
	return ServeOn(ctx, listener, handler, config, log)
}

// ServeOn is Serve with a listener, which it closes, and whose connections are limited.
func ServeOn(ctx context.Context, listener net.Listener, handler http.Handler, config *tls.Config,
	log *slog.Logger,
) error {
	server := daemon.NewServer(handler, log)
	server.WriteTimeout, server.IdleTimeout = writeWithin, idleFor
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
		server.TLSConfig = config
		if err := http2.ConfigureServer(server, &http2.Server{
			MaxConcurrentStreams: daemon.MaxStreams,
			IdleTimeout:          idleHTTP2, // a connection without a request, and so without a token
		}); err != nil {
			return fmt.Errorf("serving HTTP/2: %w", err)
		}
		listener = tls.NewListener(listener, config)
	}
	if err := daemon.Serve(ctx, listener, server); err != nil {
		return fmt.Errorf("serving the HTTP interface: %w", err)
	}
	return nil
}

// certificateLook is how often the files of a certificate are read anew. A watch of them would need an instance of
// inotify, which a node may have none left of.
const certificateLook = 10 * time.Second

// Certificates returns how to speak TLS with the certificate in two files, and what reads them anew until its context
// ends. Files that are broken, as while they are being replaced, change nothing.
func Certificates(certFile, keyFile string, log *slog.Logger) (*tls.Config, func(context.Context) error, error) {
	var current atomic.Pointer[tls.Certificate]
	read := func() error {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return fmt.Errorf("reading the certificate of the HTTP interface: %w", err)
		}
		current.Store(&pair)
		return nil
	}
	look := func(ctx context.Context) error {
		reported := "" // what was logged last
		wait.UntilWithContext(ctx, func(context.Context) {
			switch err := read(); {
			case err == nil:
				reported = ""
			case err.Error() != reported:
				reported = err.Error()
				log.Warn("the certificate that was read before goes on counting", "error", err)
			}
		}, certificateLook)
		return nil
	}
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get}, look, read()
}
