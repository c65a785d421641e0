package dial

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	const public, private, loopback, never = "public", "private", "loopback", "never"
	for text, want := range map[string]string{
		"8.8.8.8": public, "1.1.1.1": public, "2606:4700::1111": public, "64:ff9b::808:808": public,
		"172.32.0.1": public, "100.63.0.1": public,
		"10.0.0.1": private, "172.16.0.1": private, "172.31.255.255": private, "192.168.1.1": private,
		"100.64.0.1": private, "fd12::1": private,
		"fc00::1": private, "::ffff:10.0.0.1": private, "64:ff9b::a00:1": private, "2002:a00:1::1": private,
		"::10.0.0.1": private, "fec0::1": private,
		"127.0.0.1": loopback, "127.8.9.1": loopback, "::1": loopback, "::ffff:127.0.0.1": loopback,
		"64:ff9b::7f00:1": loopback,
		"169.254.169.254": never, "169.254.170.2": never, "::ffff:169.254.169.254": never, "64:ff9b::a9fe:a9fe": never,
		"2002:a9fe:a9fe::1":    never,
		"64:ff9b:1::a9fe:a9fe": never, "64:ff9b:1:a9fe:a9:fe00::": never, "64:ff9b:1:0:a9:fea9:fe00:0": never,
		"64:ff9b:1::6464:64c8": never,
		"64:ff9b:1::a00:1":     private, "64:ff9b:1::808:808": private, "::ffff:0:a9fe:a9fe": never,
		"::ffff:0:a00:1": private, "::ffff:0:808:808": public,
		"::ffff:0:7f00:1": loopback, "fd20:ce::254": never, "fd20:ce::253": private,
		"fe80::1": never, "fe80::1%eth0": never, "fd00:ec2::254": never, "100.100.100.200": never,
		"168.63.129.16": never, "192.0.0.192": never,
		"0.0.0.0": never, "0.1.2.3": never, "::": never, "::ffff:0.0.0.0": never, "224.0.0.1": never, "ff02::1": never,
		"255.255.255.255": never,
		"240.0.0.1":       never, "192.0.2.1": never, "2001:db8::1": never, "198.18.0.1": never, "2001::1": never,
	} {
		ip := netip.MustParseAddr(text)
		for name, c := range map[string]struct {
			policy Policy
			allows string
		}{
			"by default":              {Policy{}, public},
			"with private addresses":  {Policy{Private: true}, public + private},
			"with loopback addresses": {Policy{Loopback: true}, public + loopback},
		} {
			if got := c.policy.Objection(ip) == ""; got != strings.Contains(c.allows, want) {
				t.Errorf("%s %s: permitted is %v (%s)", text, name, got, c.policy.Objection(ip))
			}
		}
	}
	for _, address := range []string{"", "8.8.8.8", "name:443", "[fe80::1%eth0]:443"} {
		if (Policy{Private: true}).Control("tcp", address, nil) == nil {
			t.Errorf("address %q was permitted", address)
		}
	}
}
