package app

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube/standalone"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// pipe is a listener with an in-memory connection, so that tests of timeouts can use a fake clock.
type pipe chan net.Conn

func (p pipe) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipe) Close() error   { return nil }
func (p pipe) Addr() net.Addr { return &net.TCPAddr{} }

// TestWatchesOutliveTheWriteTimeout verifies that watches are not limited by the default timeouts of the server.
func TestWatchesOutliveTheWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		store, err := standalone.New(standalone.Options{
			Folder: t.TempDir(), State: filepath.Join(t.TempDir(), "objects.json"), Token: "secret", Log: log,
		})
		if err != nil {
			t.Fatal(err)
		}
		server := newObjectsServer(store, log)
		ours, theirs := net.Pipe()
		l := make(pipe, 1)
		l <- theirs
		served := make(chan error)
		go func() { served <- server.Serve(l) }()
		go func() {
			_, _ = io.WriteString(ours, "GET /apis/coordination.k8s.io/v1/leases?watch=true HTTP/1.1\r\nHost: x\r\n"+
				"Authorization: Bearer secret\r\n\r\n")
			bubble.Advance(10 * daemon.NewServer(store, log).WriteTimeout)
			if err := holdLease(store); err != nil {
				t.Error(err)
			}
		}()
		began, seen := time.Now(), false
		for lines := bufio.NewScanner(ours); !seen && lines.Scan(); {
			seen = strings.Contains(lines.Text(), `"ADDED"`)
		}
		if took := time.Since(began); !seen || took < 10*time.Minute {
			t.Errorf("event received: %v, after %v", seen, took)
		}
		_ = ours.Close()
		close(l)
		<-served
		_ = server.Close()
	})
}
