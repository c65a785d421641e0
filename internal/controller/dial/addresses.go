package dial

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Policy defines the permitted addresses in addition to those of the public internet. Link-local addresses,
// metadata services, multicast and reserved addresses are never permitted.
type Policy struct {
	Private  bool // private addresses: RFC 1918, shared and unique local
	Loopback bool // loopback addresses

	plain bool // for connections without TLS; rejects public addresses
}

// RefusedError is returned for an address that is not permitted.
type RefusedError struct {
	Address string
	Why     string
	Private bool // the address would be permitted with Policy.Private
}

// Error returns a message with the address and the reason.
func (e *RefusedError) Error() string { return fmt.Sprintf("address %s %s", e.Address, e.Why) }

// Control implements the Control function of [net.Dialer], which is called after name resolution and before
// connecting. It returns errors of type *RefusedError.
func (p Policy) Control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &RefusedError{Address: address, Why: "is invalid"}
	}
	if why := p.Objection(to.Addr()); why != "" {
		return &RefusedError{Address: to.Addr().String(), Why: "is " + why, Private: why == whyPrivate}
	}
	return nil
}

const whyPrivate = "private"

// Objection returns the reason why an address is not permitted, or "" if it is permitted.
func (p Policy) Objection(ip netip.Addr) string {
	ip = embedded(ip.WithZone("")) // a prefix never contains an address with a zone
	switch {
	case ip.IsUnspecified():
		return "unspecified"
	case ip.IsMulticast():
		return "multicast"
	case ip.IsLinkLocalUnicast():
		return "link-local, like metadata services"
	case within(ip, metadata):
		return "used by a metadata service"
	case within(ip, localUse) && !p.translates(ip):
		return "translated to a forbidden address"
	case ip.IsLoopback():
		if p.Loopback {
			return ""
		}
		return "loopback"
	case within(ip, reserved):
		return "reserved"
	case ip.IsPrivate() || within(ip, shared):
		if p.Private {
			return ""
		}
		return whyPrivate
	case p.plain:
		return "public and requires TLS, use https"
	}
	return ""
}

// embedded returns the IPv4 address embedded in a mapped, translated or tunneled IPv6 address, or ip if there is
// none.
func embedded(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if !ip.Is6() || ip.IsLoopback() || ip.IsUnspecified() {
		return ip
	}
	b := ip.As16()
	switch {
	case within(ip, translated):
		return netip.AddrFrom4([4]byte(b[12:]))
	case within(ip, tunnelled):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return ip
}

// translates reports whether an address of the local-use NAT64 prefix is acceptable. The position of the embedded
// IPv4 address depends on the network, so the address must not contain a forbidden one at any position.
func (p Policy) translates(ip netip.Addr) bool {
	b := ip.As16()
	for _, at := range [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}} {
		v4 := netip.AddrFrom4([4]byte{b[at[0]], b[at[1]], b[at[2]], b[at[3]]})
		if v4.IsLinkLocalUnicast() || within(v4, metadata) || v4.IsLoopback() && !p.Loopback {
			return false
		}
	}
	return true
}

var (
	// Metadata services with addresses that are not link-local: Amazon and Google over IPv6, Alibaba, Oracle and
	// Azure.
	metadata = prefixes("fd00:ec2::/32", "fd20:ce::254/128", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32")
	// Addresses that are not assigned to hosts: "this network", protocol assignments, documentation, benchmarking,
	// future use, broadcast and discard.
	reserved = prefixes(
		"0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"240.0.0.0/4", "100::/64", "2001:db8::/32", "2001::/32",
	)
	shared     = prefixes("100.64.0.0/10", "fec0::/10", "64:ff9b:1::/48")
	localUse   = prefixes("64:ff9b:1::/48")
	translated = prefixes("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")
	tunnelled  = prefixes("2002::/16")
)

func prefixes(texts ...string) []netip.Prefix { return sliceutil.Map(texts, netip.MustParsePrefix) }

func within(ip netip.Addr, all []netip.Prefix) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(ip) })
}
