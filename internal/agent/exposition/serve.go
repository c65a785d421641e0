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

// ServeOptions say where to serve, and to which clients.
type ServeOptions struct {
	Listen string // host:port
	// WebConfig is a file in the format of Prometheus' exporters: TLS, client certificates, passwords. It is read
	// anew for each connection and request, and so are the files that it names. "": plain HTTP.
	WebConfig string
}

const (
	maxConnections = 128
	maxPerPeer     = 64 // so that one client cannot keep the kubelet out
	maxHeaderBytes = 16 << 10
)

// Serve answers until ctx ends; then it finishes the answers that it has begun.
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
	defer listener.Close() // where nothing comes to serve it
	server := daemon.NewServer(handler, log)
	server.ReadTimeout = 10 * time.Second
	server.WriteTimeout = forwardTimeout + scrapeTimeout
	server.MaxHeaderBytes = maxHeaderBytes
	return daemon.Run(ctx, server, func() error {
		return web.Serve(listener, server, &web.FlagConfig{WebConfigFile: &config}, log)
	})
}
