package dashboard

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// foreign reports whether a connection was made by another account of this machine. The address that is opened first
// stands among the arguments of the browser, where other accounts can read it. Where the system does not tell, as
// beyond Linux, or where we are root, whose page others are given, it reports false.
func foreign(client, server string) bool {
	own := os.Getuid()
	if own <= 0 {
		return false
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		if uid, ok := ownerOf(string(data), client, server); ok {
			return uid != own
		}
	}
	return false
}

// ownerOf finds whose the end of a connection is, in a table of the kernel's.
func ownerOf(table, client, server string) (uid int, ok bool) {
	from, to := portOf(client), portOf(server)
	for line := range strings.Lines(table) {
		const local, remote, owner = 1, 2, 7
		fields := strings.Fields(line)
		if len(fields) <= owner || !strings.HasSuffix(fields[local], from) || !strings.HasSuffix(fields[remote], to) {
			continue
		}
		if uid, err := strconv.Atoi(fields[owner]); err == nil {
			return uid, true
		}
	}
	return 0, false
}

// portOf is the port of an address, as the kernel writes it.
func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.ParseUint(port, 10, 16)
	return fmt.Sprintf(":%04X", n)
}
