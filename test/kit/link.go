package kit

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
)

// A Link forwards TCP connections to a server and can be interrupted. The server itself is not affected.
type Link struct {
	address, to string

	mu       sync.Mutex
	listener net.Listener // nil if the link is cut
	conns    []net.Conn
}

// Start starts the link to a server, given its URL, until the test ends.
func (l *Link) Start(t testing.TB, server string) {
	t.Helper()
	l.address, l.to = Address(t), strings.TrimPrefix(server, "https://")
	l.Join(t)
	t.Cleanup(l.Cut)
}

// Kubeconfig writes a copy of a kubeconfig that uses the link to the same directory and returns its path.
func (l *Link) Kubeconfig(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return Write(t, path+".link", bytes.ReplaceAll(text, []byte(l.to), []byte(l.address)))
}

// Join accepts connections until the next Cut.
func (l *Link) Join(t testing.TB) {
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
			if !l.add(listener, from, to) {
				continue
			}
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				}()
			}
		}
	}()
}

// add returns false and closes the connections if the link has been cut.
func (l *Link) add(listener net.Listener, conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != listener {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	l.conns = append(l.conns, conns...)
	return true
}

// Cut closes all connections and rejects new ones, as if the server had been killed. The server may have executed
// requests that it has not answered.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener == nil {
		return
	}
	_ = l.listener.Close()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.listener, l.conns = nil, nil
}
