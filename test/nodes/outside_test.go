//go:build linux

package nodes

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/node"
)

// Environment variables that the outer test sets for the test in the namespaces.
const (
	groupVariable = "KUBENERGY_NODES_GROUP"
	dirVariable   = "TMPDIR"
)

// registry is the image registry in the documentation. It is never accessed because the nodes already have the
// images. tag is the image tag in the manifests.
const (
	registry = "registry.example.com/kubenergy"
	tag      = "0.1.0"
)

var images = []string{"kubenergy", "kubenergy-scheduler", "kubenergy-controller", "kubenergy-agent"}

// archive returns the path of an image written by make images.
func archive(image string) string {
	return filepath.Join(kit.Root, "out", "test", "images", image+".tar")
}

// folder creates a directory named after a control group and removes the directories of tests that were killed.
func folder(t *testing.T, group string) string {
	t.Helper()
	own := filepath.Join(os.TempDir(), group)
	old, err := filepath.Glob(filepath.Join(os.TempDir(), "kubenergy-nodes-*"))
	for _, dir := range old {
		if _, lives := os.Stat("/proc/" + strings.TrimPrefix(filepath.Base(dir), "kubenergy-nodes-")); lives != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err = errors.Join(err, os.Mkdir(own, 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(own); err != nil {
			t.Error(err)
		}
	})
	return own
}

// TestNodes runs the tests in separate namespaces.
func TestNodes(t *testing.T) {
	if os.Getenv(groupVariable) != "" {
		inside(t)
		return
	}
	if os.Getenv("KUBENERGY_REAL") == "" {
		t.Skip("runs two kubelets and containerd as root: set KUBENERGY_REAL=1 or run make e2e-nodes")
	}
	if missing := node.Missing(append(node.Tools, "bash", "ip", "nft", "sysctl", "/usr/lib/cni/ptp")...); missing != "" {
		t.Skip(missing, " (Debian: apt-get install containerd runc containernetworking-plugins nftables iproute2 procps)")
	}
	// Build the programs first, because the network is not available inside the namespaces.
	for _, program := range []string{"kubelet", "kube-proxy"} {
		kit.Kubernetes(t, program)
	}
	for _, program := range []string{"kubenergy", "kubenergy-lab", "kubenergy-scheduler"} {
		kit.Build(t, "./cmd/"+program)
	}
	kit.Build(t, "./test/real/testdata/burner")
	if _, err := kit.Go("run", "./hack/images", "-out", filepath.Dir(archive("")), "-registry", registry,
		"-images", strings.Join(images, ",")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{"-euc", `mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs none /run
ip link set lo up
exec "$@"`, "sh"}, os.Args...)...)
	group := node.MakeGroup(t, "kubenergy-nodes-")
	cmd.Env = append(os.Environ(), groupVariable+"="+group, dirVariable+"="+folder(t, group))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal("tests in separate namespaces failed: ", err)
	}
}
