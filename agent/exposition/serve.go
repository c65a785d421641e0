package exposition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/kubenergy/kubenergy/central"
)

// ServeOptions say where to serve, and to which clients.
type ServeOptions struct {
	Listen string // host:port
	// WebConfig is a file in the format of Prometheus' exporters: TLS, client certificates, passwords. It is read
	// anew for each connection and request, and so are the files that it names. "": plain HTTP.
	WebConfig string
}

const (
	maxConnections  = 128
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 5 * time.Second
)

// Serve answers until ctx ends; then it finishes the answers that it has begun.
func Serve(ctx context.Context, o ServeOptions, handler http.Handler, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	if err := serve(ctx, listener, o.WebConfig, handler, log); err != nil {
		return fmt.Errorf("serving metrics on %s: %w", o.Listen, err)
	}
	return nil
}

func serve(ctx context.Context, listener net.Listener, config string, handler http.Handler, log *slog.Logger) error {
	defer listener.Close() // where nothing comes to serve it
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      forwardTimeout + scrapeTimeout,
		IdleTimeout:       2 * time.Minute, // longer than between two scrapes
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what strangers send is no event
	}
	done := make(chan error, 1)
	go func() {
		limited := central.Limit(listener, maxConnections, maxConnections)
		done <- web.Serve(limited, server, &web.FlagConfig{WebConfigFile: &config}, log)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
