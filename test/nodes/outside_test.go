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

// What the test outside tells the one in the namespaces that it makes.
const (
	groupVariable = "KUBENERGY_NODES_GROUP"
	dirVariable   = "TMPDIR"
)

// registry is where documents push images to. Nothing asks it: they are on the nodes already. Manifests name this tag.
const (
	registry = "registry.example.com/kubenergy"
	tag      = "0.1.0"
)

var images = []string{"kubenergy", "kubenergy-scheduler", "kubenergy-controller", "kubenergy-agent"}

// archive is an image as make images writes it.
func archive(image string) string {
	return filepath.Join(kit.Root, "out", "test", "images", image+".tar")
}

// folder makes the one that has a group's name, and removes those of tests that were killed.
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

// TestNodes runs all in namespaces of its own.
func TestNodes(t *testing.T) {
	if os.Getenv(groupVariable) != "" {
		inside(t)
		return
	}
	if os.Getenv("KUBENERGY_REAL") == "" {
		t.Skip("runs two kubelets and containerd as root: set KUBENERGY_REAL=1, or make e2e-nodes")
	}
	if missing := node.Missing(append(node.Tools, "bash", "ip", "nft", "sysctl", "/usr/lib/cni/ptp")...); missing != "" {
		t.Skip(missing, " (Debian: apt-get install containerd runc containernetworking-plugins nftables iproute2 procps)")
	}
	// Modules may have to be fetched, and there is no network inside.
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
		t.Fatal("in namespaces of its own: ", err)
	}
}
