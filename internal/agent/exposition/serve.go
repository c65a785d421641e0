package exposition

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/kubenergy/kubenergy/internal/daemon"
)

// ServeOptions configures Serve.
type ServeOptions struct {
	Listen string // host:port
	// WebConfig is a file in the format of the Prometheus exporter toolkit with TLS settings, client certificates
	// and passwords. It is read for each connection and request, as are the files that it refers to. If empty,
	// plain HTTP is used.
	WebConfig string
}

const (
	maxConnections = 128
	maxPerPeer     = 64 // so that one client cannot block the kubelet
	maxHeaderBytes = 16 << 10
)

// Serve serves until ctx is done, and then completes pending responses.
func Serve(ctx context.Context, o ServeOptions, handler http.Handler, log *slog.Logger) error {
	listener, err := daemon.Listen(o.Listen, maxConnections, maxPerPeer)
	if err != nil {
		return fmt.Errorf("serving metrics: %w", err)
	}
	if err := serve(ctx, listener, o.WebConfig, handler, log); err != nil {
		return fmt.Errorf("serving metrics on %s: %w", o.Listen, err)
	}
	return nil
}

func serve(ctx context.Context, listener net.Listener, config string, handler http.Handler, log *slog.Logger) error {
	defer listener.Close() // in case the server does not start
	server := daemon.NewServer(handler, log)
	server.ReadTimeout = 10 * time.Second
	server.WriteTimeout = forwardTimeout + scrapeTimeout
	server.MaxHeaderBytes = maxHeaderBytes
	return daemon.Run(ctx, server, func() error {
		return web.Serve(listener, server, &web.FlagConfig{WebConfigFile: &config}, log)
	})
}
