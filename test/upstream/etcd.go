package main

import (
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd starts the etcd for one run of a test binary and stores its data in dir. Otherwise the upstream tests
// would start an etcd executable. The tests check over TCP whether etcd is running, so it cannot listen on a Unix
// socket like that of the lab.
func startEtcd(dir string) (address string, stop func(), err error) {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenPeerUrls = nil // a single-member cluster has no peers
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = 8 << 30 // same value as upstream
	cfg.LogLevel, cfg.LogOutputs = "error", []string{filepath.Join(dir, "log")}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return "", nil, fmt.Errorf("starting etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
	case err = <-server.Err():
		server.Close()
		return "", nil, fmt.Errorf("starting etcd: %w", err)
	}
	return "http://" + server.Clients[0].Addr().String(), server.Close, nil
}
