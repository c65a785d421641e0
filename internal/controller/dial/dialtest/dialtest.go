// Package dialtest provides fixtures for tests of name resolution and address checks: a DNS resolver without
// network access, and URLs with forbidden addresses.
package dialtest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Names maps host names, in lower case and without a trailing dot, to their addresses. Each query returns the next
// address, so that DNS rebinding can be simulated. Names that are not in the map do not exist.
type Names map[string][]string

// Resolver returns a resolver that sends no queries to other servers. Names in the hosts file of the machine, such
// as localhost, are resolved locally.
func (n Names) Resolver() *net.Resolver {
	var mu sync.Mutex
	asked := map[string]int{}
	answer := func(query []byte) []byte {
		const header = 12
		end := header
		var labels []string
		for query[end] != 0 {
			labels = append(labels, string(query[end+1:end+1+int(query[end])]))
			end += int(query[end]) + 1
		}
		question := query[header : end+5]
		reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
		name := strings.ToLower(strings.Join(labels, "."))
		addresses := n[name]
		if len(addresses) == 0 {
			reply[3] |= 3 // NXDOMAIN
			return reply
		}
		mu.Lock()
		ip := netip.MustParseAddr(addresses[min(asked[name], len(addresses)-1)])
		kind, record := uint16(1), ip.AsSlice()
		if ip.Is6() {
			kind = 28
		}
		if binary.BigEndian.Uint16(query[end+1:]) != kind {
			mu.Unlock()
			return reply // no record of this type
		}
		asked[name]++
		mu.Unlock()
		reply[7] = 1
		reply = append(reply, 0xc0, header, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(record)))
		return append(reply, record...)
	}
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go serve(server, answer)
		return client, nil
	}}
}

func serve(server net.Conn, answer func([]byte) []byte) {
	defer server.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(server, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(server, query); err != nil {
			return
		}
		reply := answer(query)
		if _, err := server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))),
			reply...)); err != nil {
			return
		}
	}
}

// A Payload is a URL that must be rejected even if private addresses are permitted.
type Payload struct {
	Name string
	URL  string
	// Numeric is true if the host is a number that only some resolvers interpret as an address. Otherwise the name
	// does not resolve.
	Numeric bool
}

// Payloads returns the URLs and the names that they contain. URLs with loopback addresses use the given port.
func Payloads(port string) ([]Payload, Names) {
	names := Names{
		"metadata.example": {"169.254.169.254"}, "metadata6.example": {"fd00:ec2::254"}, "self.example": {"127.0.0.1"},
		"self6.example":  {"::1"},
		"mapped.example": {"::ffff:169.254.169.254"}, "zero.example": {"0.0.0.0"}, "cast.example": {"224.0.0.1"},
		"local.example":               {"fe80::1"},
		"169.254.169.254.nip.example": {"169.254.169.254"}, "rebound.example": {"169.254.169.254", "127.0.0.1"},
		// Numeric hosts, as interpreted by other resolvers.
		"0x7f000001": {"127.0.0.1"}, "0x7f.1": {"127.0.0.1"}, "0xa9fea9fe": {"169.254.169.254"},
		"0xa9.0xfe.0xa9.0xfe":      {"169.254.169.254"},
		"metadata.google.internal": {"169.254.169.254"}, "localhost": {"127.0.0.1"},
	}
	here := func(host string) string { return "http://" + host + ":" + port + "/" }
	return []Payload{
		{Name: "metadata service", URL: "http://169.254.169.254/latest/meta-data/"},
		{Name: "metadata service over HTTPS", URL: "https://169.254.169.254/"},
		{Name: "metadata service of containers", URL: "http://169.254.170.2/v2/credentials"},
		{Name: "metadata service, mapped", URL: "http://[::ffff:169.254.169.254]/"},
		{Name: "metadata service, mapped in hex", URL: "http://[::ffff:a9fe:a9fe]/"},
		{Name: "metadata service, translated", URL: "http://[64:ff9b::a9fe:a9fe]/"},
		{Name: "metadata service, translated locally", URL: "http://[64:ff9b:1::a9fe:a9fe]/"},
		{Name: "metadata service, compatible", URL: "http://[::a9fe:a9fe]/"},
		{Name: "metadata service, tunnelled", URL: "http://[2002:a9fe:a9fe::1]/"},
		{Name: "metadata service over IPv6", URL: "http://[fd00:ec2::254]/"},
		{Name: "metadata service of Google over IPv6", URL: "http://[fd20:ce::254]/"},
		{Name: "metadata service of Alibaba", URL: "http://100.100.100.200/latest/meta-data/"},
		{Name: "metadata service of Oracle", URL: "http://192.0.0.192/"},
		{Name: "wire server of Azure", URL: "http://168.63.129.16/machine"},
		{Name: "loopback", URL: here("127.0.0.1")},
		{Name: "another loopback address", URL: here("127.8.9.1")},
		{Name: "loopback over IPv6", URL: here("[::1]")},
		{Name: "loopback, expanded", URL: here("[0:0:0:0:0:0:0:1]")},
		{Name: "loopback, mapped", URL: here("[::ffff:127.0.0.1]")},
		{Name: "loopback, translated", URL: here("[64:ff9b::7f00:1]")},
		{Name: "localhost", URL: here("localhost")},
		{Name: "LOCALHOST with a dot", URL: here("LOCALHOST.")},
		{Name: "loopback in hex", URL: here("0x7f000001")},
		{Name: "loopback in hex, in parts", URL: here("0x7f.1")},
		{Name: "loopback, short", URL: here("127.1"), Numeric: true},
		{Name: "loopback in octal", URL: here("0177.0.0.1"), Numeric: true},
		{Name: "loopback as one number", URL: here("2130706433"), Numeric: true},
		{Name: "metadata service as one number", URL: "http://2852039166/", Numeric: true},
		{Name: "metadata service in hex", URL: "http://0xa9fea9fe/"},
		{Name: "metadata service in hex, in parts", URL: "http://0xa9.0xfe.0xa9.0xfe/"},
		{Name: "unspecified", URL: here("0.0.0.0")},
		{Name: "unspecified over IPv6", URL: here("[::]")},
		{Name: "zero", URL: here("0"), Numeric: true},
		{Name: "this network", URL: here("0.1.2.3")},
		{Name: "multicast", URL: "http://224.0.0.1/"},
		{Name: "multicast over IPv6", URL: "http://[ff02::1]/"},
		{Name: "broadcast", URL: "http://255.255.255.255/"},
		{Name: "link-local", URL: "http://[fe80::1]/"},
		{Name: "link-local with a zone", URL: "http://[fe80::1%25lo]/"},
		{Name: "loopback with a zone", URL: here("[::1%25lo]")},
		{Name: "user in front", URL: "http://provider.example@169.254.169.254/"},
		{Name: "user and password in front", URL: "http://provider.example:80@127.0.0.1:" + port + "/"},
		{Name: "user with an escaped sign", URL: "http://provider.example%40@169.254.169.254/"},
		{Name: "fragment", URL: "http://169.254.169.254#@provider.example/"},
		{Name: "name of the metadata service", URL: "http://metadata.example/"},
		{Name: "name of the metadata service over IPv6", URL: "http://metadata6.example/"},
		{Name: "name of a mapped address", URL: "http://mapped.example/"},
		{Name: "name of loopback", URL: here("self.example")},
		{Name: "name of loopback over IPv6", URL: here("self6.example")},
		{Name: "name of the unspecified address", URL: here("zero.example")},
		{Name: "name of a multicast address", URL: "http://cast.example/"},
		{Name: "name of a link-local address", URL: "http://local.example/"},
		{Name: "name with an address in it", URL: "http://169.254.169.254.nip.example/"},
		{Name: "name of the metadata service of Google", URL: "http://metadata.google.internal/computeMetadata/v1/"},
		{Name: "name that is rebound", URL: here("rebound.example")},
	}, names
}
