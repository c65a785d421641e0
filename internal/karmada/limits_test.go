package karmada

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// TestConnectionsAreLimited verifies that a single client cannot exhaust the connections to /metrics.
func TestConnectionsAreLimited(t *testing.T) {
	f := Flags{metrics: "127.0.0.1:0"}
	o, err := f.Options(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- serveMetrics(ctx, o.Metrics, new(daemon.Heartbeats), slog.New(slog.DiscardHandler))
	}()
	dial := func(from string) (answers bool) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := dialer.Dial("tcp", o.Metrics.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		_, err = io.ReadFull(c, make([]byte, len("HTTP/1.1 200")))
		return err == nil
	}
	for i := range maxScrapesPerPeer {
		if !dial("127.0.0.1") {
			t.Fatalf("connection %d was rejected", i)
		}
	}
	if dial("127.0.0.1") {
		t.Error("a connection above the limit was served")
	}
	if !dial("127.0.0.2") {
		t.Error("the limit of one client affects another one")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// memory is a listener for in-memory connections.
type memory chan net.Conn

func (m memory) Accept() (net.Conn, error) {
	if c, ok := <-m; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (m memory) Addr() net.Addr { return &net.TCPAddr{} }
func (m memory) Close() error   { return nil }

// TestEstimatorTimeouts verifies that the estimator closes connections without requests, also after the HTTP/2
// preface.
func TestEstimatorTimeouts(t *testing.T) {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" // with empty settings
	for name, c := range map[string]struct {
		sends string
		max   time.Duration
	}{
		"nothing":    {"", daemon.HandshakeTimeout},
		"no request": {preface, 80 * time.Second}, // pings are not acknowledged
	} {
		synctest.Test(t, func(t *testing.T) {
			d := federated(t, 1, 1, time.Now)
			l := make(memory, 1)
			d.Estimator = l
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- newEstimator(d).serve(ctx) }()
			ours, theirs := net.Pipe()
			l <- theirs
			began := time.Now()
			go func() { _, _ = io.WriteString(ours, c.sends) }()
			_, err := io.Copy(io.Discard, ours)
			if open := time.Since(began); open > c.max+time.Second || open < c.max/2 {
				t.Errorf("%s: closed after %v (%v), want %v", name, open, err, c.max)
			}
			stop()
			close(l)
			if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// TestStuckLoopIsReported verifies that the liveness check fails if a loop hangs and succeeds if it is idle.
func TestStuckLoopIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := federated(t, 1, 1, time.Now)
		ctx, stop := context.WithCancel(t.Context())
		q, release, ended := newQueue(), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			d.work(d.beats.Loop(ctx, "releases"), q, func(context.Context, *binding) error {
				<-release
				return nil
			})
		}()
		bubble.Advance(24 * time.Hour)
		if err := d.beats.Check(); err != nil {
			t.Errorf("idle loop: %v", err)
		}
		b := divided(t, "b", 1)
		if err := d.bound.GetStore().Add(b); err != nil {
			t.Fatal(err)
		}
		q.Add(b.key())
		bubble.Advance(daemon.MaxRound + time.Minute)
		if d.beats.Check() == nil {
			t.Error("a loop that hangs is reported as healthy")
		}
		close(release)
		synctest.Wait()
		if err := d.beats.Check(); err != nil {
			t.Errorf("after the loop continued: %v", err)
		}
		stop()
		<-ended
	})
}
