package central

import (
	"net"
	"sync"
)

// Limit returns a listener that closes connections beyond a number at once: they cost no memory, and their callers do
// not wait unanswered, as they would with that of golang.org/x/net. The agent and the central unit serve with it.
func Limit(l net.Listener, connections int) net.Listener {
	return &limitedListener{l, make(chan struct{}, connections)}
}

type limitedListener struct {
	net.Listener
	places chan struct{}
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			_ = c.Close()
		}
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
