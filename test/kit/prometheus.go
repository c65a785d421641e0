package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Prometheus returns the path of prometheus or promtool: the one that is installed, or that make prometheus has
// unpacked. Where there is none, the test is skipped.
func Prometheus(t testing.TB, program string) string {
	t.Helper()
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	path := filepath.Join(Root, "out", "prometheus", "usr", "bin", program)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("there is no %s: make prometheus unpacks Debian's, where there is apt", program)
	}
	return path
}
