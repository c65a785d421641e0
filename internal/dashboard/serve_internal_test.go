package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a listener with one in-memory connection, so that timeouts do not require real time.
type pipe chan net.Conn

func (p pipe) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipe) Close() error   { return nil }
func (p pipe) Addr() net.Addr { return &net.TCPAddr{} }

// idle is a source that never changes.
type idle struct{ Source }

func (idle) Live() bool                                   { return true }
func (idle) Model(context.Context, Query) (*Model, error) { return &Model{}, nil }

// The event stream outlives the timeout of other responses, which is longer than the creation of two models.
func TestEventsOutliveTheWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := NewServer(idle{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}, time.Now)
		server := newHTTP(t.Context(), page)
		if server.WriteTimeout <= 2*timeout {
			t.Errorf("the write timeout is %v, want more than twice %v", server.WriteTimeout, timeout)
		}
		ours, theirs := net.Pipe()
		l := make(pipe, 1)
		l <- theirs
		served := make(chan error)
		go func() { served <- server.Serve(l) }()
		go fmt.Fprintf(ours, "GET /events HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\n\r\n", page.host, page.cookie(), page.session)
		began, events := time.Now(), 0
		for lines := bufio.NewScanner(ours); events < 5 && lines.Scan(); {
			if lines.Text() == "event: changed" {
				events++
			}
		}
		if took := time.Since(began); events < 5 || took < 2*server.WriteTimeout {
			t.Errorf("got %d events within %v", events, took)
		}
		_ = ours.Close()
		close(l)
		<-served
		_ = server.Close()
	})
}
