package dashboard

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/procfs"
)

// The kernel's table contains both ends of a connection. Only the client's end identifies the owner.
func TestOwnerOf(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:D2A4 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0100007F:D2A4 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 3 1 0 20 4 30 10 -1
   3: 0100007F:00A4 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 4 1 0 20 4 30 10 -1
`
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "net", "tcp"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	kernel, err := procfs.NewFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	for client, want := range map[string]uint64{"127.0.0.1:53924": 1001, "127.0.0.1:164": 1000, "127.0.0.1:5": 0} {
		if uid, ok := ownerOf(kernel, client, "127.0.0.1:8080"); uid != want || ok != (want > 0) {
			t.Errorf("ownerOf(%s) = %d, want %d", client, uid, want)
		}
	}
}
