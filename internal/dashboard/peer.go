package dashboard

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// foreign reports whether another account of this machine opened a connection. The first URL is an argument of the
// browser's process, where other accounts can read it. It returns false if the owner is unknown, as on systems
// other than Linux, and for root, who opens pages for other accounts.
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

// ownerOf returns the UID of the owner of a connection's client end, according to a table of the kernel.
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

// portOf returns the port of an address in the format of the kernel.
func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.ParseUint(port, 10, 16)
	return fmt.Sprintf(":%04X", n)
}
