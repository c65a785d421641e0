package daemon

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are in memory, so that their timeouts need no real time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestServerTimeouts checks that a client can take its time in no step: before the request, within its header, within
// its body, and after the response.
func TestServerTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		sends string
		max   time.Duration
	}{
		"nothing":        {"", HandshakeTimeout},
		"half a header":  {"GET / HTTP/1.1\r\nHost: x\r\n", HandshakeTimeout},
		"half a body":    {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1234", requestTimeout},
		"a request only": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", idleTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := make(pipes, 1)
			s := NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
			}), slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- Serve(ctx, l, s) }()
			ours, theirs := net.Pipe()
			l <- theirs
			began := time.Now()
			go func() { _, _ = io.WriteString(ours, c.sends) }()
			for r := bufio.NewReader(ours); ; {
				if _, err := r.ReadByte(); err != nil {
					break
				}
			}
			if open := time.Since(began); open > c.max+time.Second {
				t.Errorf("%s: the connection is open for %v, want %v at most", name, open, c.max)
			}
			cancel()
			close(l)
			if err := <-done; err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	}
}
