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

const (
	maxConnections = 128
	maxPerPeer     = 64 // so that one client cannot block the kubelet
	maxHeaderBytes = 16 << 10
)

// Serve serves on an address (host:port) until ctx is done, and then completes pending responses. config is a file in
// the format of the Prometheus exporter toolkit with TLS settings, client certificates and passwords. It is read for
// each connection and request, as are the files that it refers to. If it is empty, plain HTTP is used.
func Serve(ctx context.Context, address, config string, handler http.Handler, log *slog.Logger) error {
	listener, err := daemon.Listen(address, maxConnections, maxPerPeer)
	if err == nil {
		err = serve(ctx, listener, config, handler, log)
	}
	if err != nil {
		return fmt.Errorf("serving metrics on %s: %w", address, err)
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
