package dashboard

import (
	"net/netip"
	"os"

	"github.com/prometheus/procfs"
)

// foreign reports whether another account of this machine opened a connection. The first URL is an argument of the
// browser's process, where other accounts can read it. It returns false if the owner is unknown, as on systems
// other than Linux, and for root, who opens pages for other accounts.
func foreign(client, server string) bool {
	own := os.Getuid()
	kernel, err := procfs.NewDefaultFS()
	if own <= 0 || err != nil {
		return false
	}
	uid, ok := ownerOf(kernel, client, server)
	return ok && uid != uint64(own)
}

// ownerOf returns the UID of the owner of a connection's client end, according to the tables of the kernel.
func ownerOf(kernel procfs.FS, client, server string) (uid uint64, ok bool) {
	from, _ := netip.ParseAddrPort(client)
	to, _ := netip.ParseAddrPort(server)
	for _, read := range []func() (procfs.NetTCP, error){kernel.NetTCP, kernel.NetTCP6} {
		ends, _ := read() // without this table, the owner is unknown
		for _, end := range ends {
			if end.LocalPort == uint64(from.Port()) && end.RemPort == uint64(to.Port()) {
				return end.UID, true
			}
		}
	}
	return 0, false
}
