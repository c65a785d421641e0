package daemon

import (
	"net"
	"sync"
)

// Limit returns a listener that accepts at most the given number of concurrent connections in total and at most
// perPeer from one address. It closes excess connections immediately, so that they use no memory and their clients
// do not wait for a response, unlike golang.org/x/net/netutil.
func Limit(l net.Listener, connections, perPeer int) net.Listener {
	return &limitedListener{Listener: l, max: connections, perPeer: perPeer, peers: map[string]int{}}
}

type limitedListener struct {
	net.Listener
	max, perPeer int

	mu    sync.Mutex
	open  int
	peers map[string]int // open connections by address
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
	if l.open >= l.max || l.peers[peer] >= l.perPeer {
		return false
	}
	l.open++
	l.peers[peer]++
	return true
}

func (l *limitedListener) leave(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.peers[peer]--; l.peers[peer] == 0 {
		delete(l.peers, peer)
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
