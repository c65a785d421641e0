package access

import (
	"context"
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
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	const site = 64 // bits
	address := from.Addr().Unmap().WithZone("")
	if address.Is6() {
		return netip.PrefixFrom(address, site).Masked().String()
	}
	return address.String()
}
