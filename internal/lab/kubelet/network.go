package kubelet

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"sync"
)

// Network assigns an address to each pod, because Endpoints must not be loopback addresses. No network interface
// has these addresses; they are only reachable through DialContext. The zero Network has no pods.
type Network struct {
	mu    sync.Mutex
	pods  map[string]ports // by address
	count uint16           // number of assigned addresses
}

// join assigns an address to a pod with the given ports.
func (n *Network) join(p ports) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods == nil {
		n.pods = map[string]ports{}
	}
	for {
		n.count++
		at := netip.AddrFrom4([4]byte{10, 127, byte(n.count >> 8), byte(n.count)}).String()
		if _, taken := n.pods[at]; !taken {
			n.pods[at] = p
			return at
		}
	}
}

func (n *Network) leave(at string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, at)
}

// DialContext connects to the port of this machine that is mapped to a port of a pod. For other addresses it
// behaves like net.Dialer.
func (n *Network) DialContext(ctx context.Context, network, to string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, n.resolve(to))
}

func (n *Network) resolve(to string) string {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return to
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	number, err := strconv.Atoi(port)
	if mine, ok := n.pods[host][number]; ok && err == nil {
		return net.JoinHostPort(address, strconv.Itoa(mine))
	}
	return to
}
