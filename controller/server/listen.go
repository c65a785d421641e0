package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubenergy/kubenergy/central"
)

// What a server allows its callers.
const (
	maxHeaderBytes   = 64 << 10
	maxConnections   = 20_000 // an agent keeps one, and so do schedulers
	maxOfPeer        = 2_500  // of one address: one stranger leaves room for the others
	readHeaderWithin = 5 * time.Second
	readWithin       = time.Minute
	writeWithin      = auditWithin + 30*time.Second
	idleFor          = 3 * time.Minute  // longer than between two batches, which agents send over HTTP/1.1
	idleHTTP2        = 10 * time.Second // strangers need no request to have such a connection
	stopWithin       = 10 * time.Second
	maxStreams       = 100 // of HTTP/2, by connection
)

// Serve answers on an address until ctx ends, and then lets those finish who are being answered. Without TLS only the
// machine itself is answered: neither the answers nor the tokens are for strangers.
func Serve(ctx context.Context, addr string, handler http.Handler, config *tls.Config, log *slog.Logger) error {
	if config == nil && !loopback(addr) {
		return fmt.Errorf("serving the HTTP interface on %s: without TLS it is served on a loopback address only", addr)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serving the HTTP interface: %w", err)
	}
	return ServeOn(ctx, listener, handler, config, log)
}

// ServeOn is Serve with a listener, which it closes.
func ServeOn(ctx context.Context, listener net.Listener, handler http.Handler, config *tls.Config,
	log *slog.Logger,
) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: readHeaderWithin, ReadTimeout: readWithin, WriteTimeout: writeWithin,
		IdleTimeout:    idleFor,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug), // strangers could fill the log otherwise
	}
	listener = central.Limit(listener, maxConnections, maxOfPeer)
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
		server.TLSConfig = config
		if err := http2.ConfigureServer(server, &http2.Server{
			MaxConcurrentStreams: maxStreams, IdleTimeout: idleHTTP2,
		}); err != nil {
			return fmt.Errorf("serving HTTP/2: %w", err)
		}
		listener = tls.NewListener(listener, config)
	}
	defer func() { _ = server.Close() }() // what has not finished by then
	serving := &manager.Server{Name: "api", Server: server, Listener: listener, ShutdownTimeout: new(stopWithin)}
	if err := serving.Start(ctx); err != nil {
		return fmt.Errorf("serving the HTTP interface: %w", err)
	}
	return nil
}

// loopback reports whether an address is the machine's own. A name is not: it may mean anything.
func loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, _ := netip.ParseAddr(host) // of what is no address it is the zero one, which is not loopback
	return host == "localhost" || ip.IsLoopback()
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
		told := "" // what was logged last
		wait.UntilWithContext(ctx, func(context.Context) {
			switch err := read(); {
			case err == nil:
				told = ""
			case err.Error() != told:
				told = err.Error()
				log.Warn("the certificate that was read before goes on counting", "error", err)
			}
		}, certificateLook)
		return nil
	}
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: get}, look, read()
}
