//go:build linux

package real

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit/node"
)

// require skips the test if no pods can be run. The CNI plugins do not have to be installed because pods use the
// host network.
func require(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBENERGY_REAL") == "" {
		t.Skip("runs a kubelet and containerd as root: set KUBENERGY_REAL=1 or run make e2e-real")
	}
	if missing := node.Missing(node.Tools...); missing != "" {
		t.Skip(missing, " (Debian: apt-get install containerd runc)")
	}
	for _, controller := range []string{"cpu", "cpuacct"} {
		if _, err := os.Stat(filepath.Join(node.Groups, controller, "cgroup.procs")); err != nil {
			t.Skipf("no control groups of version 1 with the controller %s: %v", controller, err)
		}
	}
}
