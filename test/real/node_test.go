//go:build linux

package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/test/kit"
)

const nodeName = "real"

// image holds the burner and nothing else. It is also what holds a pod's namespaces.
const image = "localhost/kubenergy/burner:real"

// sysctls are what a kubelet sets on the machine that it runs on. Here it sets files that stand in their place.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// folders are those of the machine that a kubelet or containerd writes to whatever it is told. Here others stand there.
var folders = []string{"/run", "/var/lib", "/var/log"}

// isolated is a command of a shell in new namespaces of mounts and processes, as their first process: with it
// everything ends that is ever started in there.
func isolated(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-euc", "mount --make-rprivate /\nmount -t proc proc /proc\n"+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	return cmd
}

// disguise prepares what stands in the place of folders and settings of the machine, and returns the commands that
// put it there.
func disguise(t *testing.T, dir string) string {
	t.Helper()
	var script strings.Builder
	replace := func(path string) string {
		instead := filepath.Join(dir, "instead", path)
		fmt.Fprintf(&script, "mount --bind '%s' '%s'\n", instead, path)
		return instead
	}
	for _, path := range folders {
		if strings.HasPrefix(dir, path+"/") {
			t.Fatalf("TMPDIR may not be in %s, which the kubelet gets another one of", path)
		}
		if err := os.MkdirAll(replace(path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range sysctls {
		path := filepath.Join("/proc/sys", name)
		value, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		instead := replace(path)
		if err := os.MkdirAll(filepath.Dir(instead), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, instead, string(value))
	}
	return script.String()
}

const containerdConfig = `version = 2
root = "DIR/containerd"
state = "DIR/state"
[grpc]
  address = "DIR/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "DIR/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "IMAGE"
  # It may not lower the score below its own, where it lacks the capability for that.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "DIR/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    # Copies work on every file system, overlays do not; the images are small.
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`

// Pods share the machine's network, so this is never carried out; without one a node does not become ready.
const network = `{"cniVersion":"0.4.0","name":"none","plugins":[{"type":"loopback"}]}`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://DIR/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /GROUP
failCgroupV1: false
enforceNodeAllocatable: []
failSwapOn: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
enableServer: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
podLogsDir: DIR/podlogs
volumePluginDir: DIR/plugins
resolvConf: ""
`

// startNode runs containerd and a kubelet, and returns when the node is ready.
func (w *world) startNode(t *testing.T) {
	t.Helper()
	fill := strings.NewReplacer("DIR", w.dir, "IMAGE", image, "GROUP", w.group).Replace
	for name, text := range map[string]string{
		"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig, "cni/none.conflist": network,
	} {
		write(t, filepath.Join(w.dir, name), fill(text))
	}
	script := disguise(t, w.dir) + fmt.Sprintf("exec containerd --config '%s/containerd.toml'\n", w.dir)
	containerd := start(t, w.dir, "containerd", isolated(context.Background(), script))
	t.Cleanup(containerd.Kill) // the first process of its namespaces: all others end with it
	ctr := func(ctx context.Context, args ...string) error {
		out, err := exec.CommandContext(ctx, "ctr",
			append([]string{"--address", filepath.Join(w.dir, "containerd.sock"), "-n", "k8s.io"},
				args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	kit.Await(t, 30*time.Second, "containerd answers", func(ctx context.Context) (bool, error) {
		err := ctr(ctx, "version")
		return err == nil, err
	}, containerd)
	archived := filepath.Join(w.dir, "burner.tar")
	kit.WriteImage(t, image, w.burner, archived)
	if err := ctr(t.Context(), "images", "import", "--snapshotter", "native", archived); err != nil {
		t.Fatal(err)
	}
	kubelet := start(t, w.dir, "kubelet", exec.Command("nsenter", "--target", strconv.Itoa(containerd.Cmd.Process.Pid),
		"--mount", "--pid", "--",
		w.kubelet, "--config="+filepath.Join(w.dir, "kubelet.yaml"), "--kubeconfig="+w.kubeconfig,
		"--root-dir="+filepath.Join(w.dir, "kubelet"), "--cert-dir="+filepath.Join(w.dir, "kubelet/pki"),
		"--hostname-override="+nodeName, "--node-ip=127.0.0.1"))
	kit.Await(t, time.Minute, "the node is ready", func(ctx context.Context) (bool, error) {
		node, err := w.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue, fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
		}
		return false, errors.New("it says nothing of it")
	}, containerd, kubelet)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
