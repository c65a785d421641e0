//go:build linux

package real

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tools are what must be installed. containernetworking-plugins are not among them: pods share the machine's network.
var tools = []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "mount", "nsenter", "sh", "go"}

// require skips where no pods can be run.
func require(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBENERGY_REAL") == "" {
		t.Skip("runs a kubelet and containerd as root: set KUBENERGY_REAL=1, or make e2e-real")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can run a kubelet and containerd")
	}
	var missing []string
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		t.Skipf("not installed: %s (Debian: apt-get install containerd runc)", strings.Join(missing, ", "))
	}
	for _, controller := range controllers {
		folder := filepath.Join(cgroupRoot, controller)
		if _, err := os.Stat(filepath.Join(folder, "cgroup.procs")); err != nil {
			t.Skipf("no control groups of version 1 with the controller %s: %v", controller, err)
		}
		probe := filepath.Join(folder, groupPrefix+"probe")
		if err := os.Mkdir(probe, 0o755); err != nil {
			t.Skipf("control groups cannot be made here: %v", err)
		}
		if err := os.Remove(probe); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := isolated(t.Context(), "true").CombinedOutput(); err != nil {
		t.Skipf("namespaces of mounts and processes cannot be made here: %v\n%s", err, out)
	}
}
