package lab

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// maxSocketPath is the shortest limit of the supported systems (macOS, 104 including the terminating zero).
const maxSocketPath = 103

// startEtcd starts etcd and returns the endpoint for --etcd-servers. etcd only listens on a socket inside dir.
// Without certificates, access is restricted by the permissions of the directory, and gRPC without TLS is also
// cheaper.
func startEtcd(ctx context.Context, dir string, logs *sink) (*component, string, error) {
	socket := filepath.Join(dir, "etcd.sock")
	if len(socket) > maxSocketPath {
		return nil, "", fmt.Errorf("path %s of etcd's socket is longer than %d bytes: choose a shorter directory",
			socket, maxSocketPath)
	}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	cfg.ListenPeerUrls = nil // a single member has no peers; the advertised URLs are never dialled
	cfg.EnableGRPCGateway = false
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = 8 << 30 // 100,000 Jobs with their pods and events exceed the default of 2 GiB
	// The zero value set by NewConfig logs every request.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logs.zap())

	srv, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", err
	}
	c := startComponent(ctx, "etcd", func(ctx context.Context) error {
		defer srv.Close()
		select {
		case err := <-srv.Err():
			return err
		case <-srv.Server.StopNotify():
		case <-ctx.Done():
		}
		return nil
	})
	return c, "unix://" + socket, c.wait(ctx, closed(srv.Server.ReadyNotify()))
}
