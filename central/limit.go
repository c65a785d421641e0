package central

import (
	"net"
	"sync"
)

// Limit returns a listener that closes connections beyond a number at once, of all peers and of each address: they cost
// no memory, and their callers do not wait unanswered, as they would with that of golang.org/x/net. The agent and the
// central unit serve with it.
func Limit(l net.Listener, connections, each int) net.Listener {
	return &limitedListener{Listener: l, most: connections, each: each, of: map[string]int{}}
}

type limitedListener struct {
	net.Listener
	most, each int

	mu  sync.Mutex
	all int
	of  map[string]int // by address
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := c.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(peer); err == nil {
			peer = host
		}
		if l.enter(peer) {
			return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(peer) })}, nil
		}
		_ = c.Close()
	}
}

func (l *limitedListener) enter(peer string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.most || l.of[peer] >= l.each {
		return false
	}
	l.all++
	l.of[peer]++
	return true
}

func (l *limitedListener) leave(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[peer]--; l.of[peer] == 0 {
		delete(l.of, peer)
	}
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
