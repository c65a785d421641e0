package karmada

import (
	"io"
	"net"
	"sync"
	"testing"
)

// link is a network connection between Karmada and a member that can be interrupted. The member itself is not
// affected.
type link struct {
	address, to string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
}

// join restores the connection.
func (l *link) join(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.listener = listener
	l.mu.Unlock()
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", l.to)
			if err != nil {
				_ = from.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, from, to)
			l.mu.Unlock()
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				}()
			}
		}
	}()
}

// cut closes all connections and rejects new ones.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.listener.Close()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}
