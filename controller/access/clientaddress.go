package access

import (
	"context"
	"net"
	"net/http"
	"net/netip"
)

// guesses is how many tokens that are not valid one address may have reviewed, before it has to wait with others that
// are not known yet. Clients behind a proxy or another replica share its address: any caller can forge the headers that
// tell where a request comes from. Tokens that were valid before are no guesses.
var guesses = Allowance{PerSecond: 2, AtOnce: 50}

type peerKey struct{}

// From returns the context of a request that knows where the request comes from: an address that guesses tokens then
// does not use up the reviews of all others.
func From(r *http.Request) context.Context {
	return context.WithValue(r.Context(), peerKey{}, peerOf(r.RemoteAddr))
}

// peerOf returns an address, or the network that one of IPv6 has to itself.
func peerOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return ""
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	const site = 64 // bits
	if address = address.Unmap().WithZone(""); address.Is6() {
		if network, err := address.Prefix(site); err == nil {
			return network.String()
		}
	}
	return address.String()
}
