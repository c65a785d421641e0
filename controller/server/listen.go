package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"
)

// What a server allows its callers.
const (
	maxHeaderBytes   = 64 << 10
	maxConnections   = 20_000 // an agent keeps one, and so do schedulers
	readHeaderWithin = 5 * time.Second
	readWithin       = time.Minute
	writeWithin      = auditWithin + 30*time.Second
	idleFor          = 3 * time.Minute // longer than between two batches
	stopWithin       = 10 * time.Second
	maxStreams       = 100 // of HTTP/2, by connection
)

// Serve answers on an address until ctx ends, and then lets those finish who are being answered. Without TLS only the
// machine itself is answered: what is said here is not for strangers, and neither are the tokens that are sent.
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
		MaxHeaderBytes: maxHeaderBytes, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // strangers could fill the log otherwise
	}
	listener = limitConnections(listener, maxConnections)
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
		server.TLSConfig = config
		listener = tls.NewListener(listener, config)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving the HTTP interface: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the HTTP interface: %w", err)
	}
	return nil
}

// loopback reports whether an address is the machine's own. A name is not: it may mean anything.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// limitedListener closes connections beyond a number.
type limitedListener struct {
	net.Listener
	places chan struct{}
}

func limitConnections(l net.Listener, most int) net.Listener {
	return &limitedListener{l, make(chan struct{}, most)}
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			_ = c.Close()
		}
	}
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// Certificates returns how to speak TLS with the certificate in two files, which are read anew when they change.
func Certificates(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	f := &certificateFiles{cert: certFile, key: keyFile, now: time.Now, log: log}
	if err := f.read(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.get}, nil
}

// certificateFiles are read anew at most every lookAgain. Broken ones, as while they are being replaced, change
// nothing.
type certificateFiles struct {
	cert, key string
	now       func() time.Time
	log       *slog.Logger

	mu       sync.Mutex
	looked   time.Time
	certPEM  []byte
	keyPEM   []byte
	current  *tls.Certificate
	reported string
}

const lookAgain = 10 * time.Second

func (f *certificateFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := f.now().Sub(f.looked); age < 0 || age >= lookAgain {
		if err := f.read(); err != nil && err.Error() != f.reported {
			f.reported = err.Error()
			f.log.Error("reading the certificate of the HTTP interface: the last one stays", "error", err)
		}
	}
	return f.current, nil
}

func (f *certificateFiles) read() error {
	f.looked = f.now()
	certPEM, err := os.ReadFile(f.cert)
	if err != nil {
		return fmt.Errorf("reading a certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(f.key)
	if err != nil {
		return fmt.Errorf("reading the key of a certificate: %w", err)
	}
	if f.current != nil && bytes.Equal(certPEM, f.certPEM) && bytes.Equal(keyPEM, f.keyPEM) {
		return nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("reading the certificate in %s: %w", f.cert, err)
	}
	f.certPEM, f.keyPEM, f.current, f.reported = certPEM, keyPEM, &pair, ""
	return nil
}
