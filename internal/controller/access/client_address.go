package access

import (
	"context"
	"net/http"
	"net/netip"
)

// guesses limits the reviews of invalid tokens per client address. When the limit is reached, requests from the
// address with unknown tokens are rejected until the limit allows more. Clients behind the same proxy share an
// address, because the headers with the original address can be forged. Tokens that were valid before are exempt.
var guesses = Allowance{PerSecond: 2, AtOnce: 50}

type peerKey struct{}

// From returns the context of a request with its client address. The address is used to limit the reviews of
// clients that guess tokens.
func From(r *http.Request) context.Context {
	return context.WithValue(r.Context(), peerKey{}, peerOf(r.RemoteAddr))
}

// peerOf returns the IPv4 address or the IPv6 /64 network of a remote address, or "" if it cannot be parsed.
func peerOf(remote string) string {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	const site = 64 // prefix length in bits
	address := from.Addr().Unmap().WithZone("")
	if address.Is6() {
		return netip.PrefixFrom(address, site).Masked().String()
	}
	return address.String()
}
