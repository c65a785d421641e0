package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of in-memory connections, which allows tests to use fake time for timeouts.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestServerTimeouts verifies that a connection is closed exactly at the timeout of each step: before a request,
// within its header, within its body, and after the response.
func TestServerTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		sends string
		want  time.Duration
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
			if open := time.Since(began); open < c.want || open > c.want+time.Second {
				t.Errorf("%s: connection was open for %v, want %v", name, open, c.want)
			}
			cancel()
			close(l)
			if err := <-done; err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// TestPanicsAreLogged verifies that a panic of a handler is logged as an error, that client errors are not, and
// that the client detects a truncated response because the connection is closed.
func TestPanicsAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		with  any
		wants string
	}{
		"panic": {"planted", "panic=planted"},
		"abort": {http.ErrAbortHandler, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var text bytes.Buffer
			l := make(pipes, 1)
			s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "a part")
				panic(c.with)
			}), slog.New(slog.NewTextHandler(&text, nil)))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- Serve(ctx, l, s) }()
			ours, theirs := net.Pipe()
			l <- theirs
			go func() { _, _ = io.WriteString(ours, "GET /path HTTP/1.1\r\nHost: x\r\n\r\n") }()
			response, _ := io.ReadAll(ours)
			cancel()
			close(l)
			if err := <-done; err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			if len(response) > 0 || (text.Len() > 0) != (c.wants != "") || !strings.Contains(text.String(), c.wants) {
				t.Errorf("%s: client read %q, log is %q", name, response, text.String())
			}
		})
	}
}
