package main

import (
	"fmt"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd starts the etcd that one run of a test binary uses, with what it stores in dir; upstream's tests would
// look for an executable otherwise. They ask whether one is there over TCP, so it cannot listen on a socket as the
// lab's does.
func startEtcd(dir string) (address string, stop func(), err error) {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenPeerUrls = nil // a cluster of one has no peers
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = 8 << 30 // as upstream's own
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
