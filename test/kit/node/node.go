//go:build linux

// Package node runs real nodes on this machine. Each node consists of containerd and a kubelet in separate
// namespaces. The package is for tests only.
//
// The machine is not modified. Directories and kernel settings that the programs would write to are replaced inside
// the namespaces. All processes of a node exit with the first process of its namespaces, even if the test is
// killed. All other state is below one directory and one control group, which the node sees as the root of all
// groups.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/test/kit"
)

// Node configures a node.
type Node struct {
	Name       string
	Dir        string // directory for all files of the node
	Group      string // control group in all hierarchies, see MakeGroup
	Kubelet    string // path of the kubelet binary
	Kubeconfig string // path of the kubelet's kubeconfig
	Sandbox    string // image of the pause container
	Images     []string
	// Network is a network namespace of `ip netns` for a node that has its own address, a pod CIDR and kube-proxy.
	// If it is empty, pods use the host network and the kubelet does not serve requests.
	Network       string
	Address, Pods string
	DNS           string
	Proxy         string // path of the kube-proxy binary
	ProxyConfig   string // path of the kubeconfig of kube-proxy
	// Before contains shell commands that run before the programs of the node start.
	Before string
}

// Tools lists the programs that a node requires, except programs that Debian installs as dependencies of others.
var Tools = []string{
	"containerd", "containerd-shim-runc-v2", "ctr", "runc", "mount", "unshare", "nsenter", "sh", "go",
}

// Missing returns the reason why no node can run on this machine, such as missing tools, a user other than root or
// a lack of permission to create namespaces. It returns "" if a node can run.
func Missing(tools ...string) string {
	if os.Geteuid() != 0 {
		return "only root can run a kubelet and containerd"
	}
	var missing []string
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return "not installed: " + strings.Join(missing, ", ")
	}
	probe := "unshare --cgroup --mount --pid --fork sh -euc 'mount --make-rprivate /; mount -t proc proc /proc'"
	if out, err := exec.Command("sh", "-c", probe).CombinedOutput(); err != nil {
		return fmt.Sprintf("cannot create mount, PID and cgroup namespaces: %v\n%s", err, out)
	}
	all, err := hierarchies()
	if err != nil || len(all) == 0 {
		return fmt.Sprintf("no control groups found in %s: %v", Groups, err)
	}
	for _, h := range all {
		group := filepath.Join(h, "kubenergy-probe")
		if err := errors.Join(os.Mkdir(group, 0o755), os.Remove(group)); err != nil {
			return fmt.Sprintf("cannot create control groups: %v", err)
		}
	}
	return ""
}

// sysctls lists the kernel settings that a kubelet writes. Inside the node they are replaced by regular files.
var sysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// folders lists the directories that a kubelet or containerd writes to regardless of its configuration. Inside the
// node they are replaced by other directories.
var folders = []string{"/run", "/var/lib", "/var/log"}

// disguise prepares replacements for directories and settings of the machine and returns the shell commands that
// mount them.
func disguise(t testing.TB, dir string) string {
	t.Helper()
	var script strings.Builder
	replace := func(path string) string {
		instead := filepath.Join(dir, "instead", path)
		fmt.Fprintf(&script, "mount --bind '%s' '%s'\n", instead, path)
		return instead
	}
	for _, path := range folders {
		if strings.HasPrefix(dir, path+"/") {
			t.Fatalf("TMPDIR must not be in %s, because that directory is replaced for the kubelet", path)
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
		write(t, replace(path), string(value))
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
  sandbox_image = "SANDBOX"
  # containerd cannot set an OOM score below its own without the required capability.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "DIR/cni"
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    # Unlike overlays, copies work on every file system, and the images are small.
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`

// networks maps whether a node has its own network to the CNI configuration of its pods. The configuration for the
// host network is never executed, but a node without a configuration does not become ready.
var networks = map[bool]string{
	false: `{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"loopback"}]}`,
	true: `{"cniVersion":"0.4.0","name":"pods","plugins":[{"type":"ptp","ipMasq":false,"ipam":{"type":"host-local",
"dataDir":"DIR/addresses","ranges":[[{"subnet":"PODS"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`,
}

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://DIR/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
enforceNodeAllocatable: []
failSwapOn: false
localStorageCapacityIsolation: false
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
enableServer: SERVER
authentication: {anonymous: {enabled: SERVER}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
podLogsDir: DIR/podlogs
volumePluginDir: DIR/plugins
resolvConf: ""
`

// Start runs a node until the test ends.
func (n *Node) Start(t testing.TB) *kit.Process {
	t.Helper()
	own := n.Network != ""
	fill := strings.NewReplacer("DIR", n.Dir, "SANDBOX", n.Sandbox, "PODS", n.Pods, "SERVER", strconv.FormatBool(own)).Replace
	for name, text := range map[string]string{
		"containerd.toml": containerdConfig, "cni/pods.conflist": networks[own], "kubelet.yaml": kubeletConfig,
	} {
		write(t, filepath.Join(n.Dir, name), fill(text))
	}
	join, err := enter(n.Group)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := mountGroups()
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"-euc", join, "sh"}
	if own {
		command = append(command, "ip", "netns", "exec", n.Network) // ip netns mounts another /sys
	}
	command = append(command, "unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc",
		"mount --make-rprivate /\nmount -t proc proc /proc\n"+groups+disguise(t, n.Dir)+n.Before+n.programs())
	p := kit.Start(t, n.Dir, n.Name, exec.Command("sh", command...))
	t.Cleanup(p.Kill) // all processes exit with the first process of their namespaces
	return p
}

// programs returns the shell commands that start the programs of a node. If one program exits, all are stopped.
func (n *Node) programs() string {
	var script strings.Builder
	fmt.Fprintf(&script, "cd %s\ncontainerd --log-level warn --config containerd.toml &\n", n.Dir)
	script.WriteString("until ctr --address containerd.sock version >/dev/null 2>&1; do sleep 0.1; done\n")
	for _, image := range n.Images {
		fmt.Fprintf(&script, "ctr --address containerd.sock -n k8s.io images import --snapshotter native %s\n", image)
	}
	address := "127.0.0.1"
	if n.Network != "" {
		address = n.Address
		fmt.Fprintf(&script, "%s --kubeconfig=%s --hostname-override=%s --proxy-mode=nftables --conntrack-max-per-core=0 &\n",
			n.Proxy, n.ProxyConfig, n.Name)
	}
	flags := ""
	if n.DNS != "" {
		flags = " --cluster-dns=" + n.DNS + " --cluster-domain=cluster.local"
	}
	fmt.Fprintf(&script, "%s --config=kubelet.yaml --kubeconfig=%s --root-dir=%s/kubelet --cert-dir=%[3]s/kubelet/pki "+
		"--hostname-override=%s --node-ip=%s%s &\nwait -n\nexit 1\n",
		n.Kubelet, n.Kubeconfig, n.Dir, n.Name, address, flags)
	return script.String()
}

// AwaitReady waits until the node reports that it is ready.
func (n *Node) AwaitReady(t testing.TB, client kubernetes.Interface, p *kit.Process) {
	t.Helper()
	kit.Await(t, time.Minute, "node "+n.Name+" is ready", func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue, fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
		}
		return false, errors.New("node has no Ready condition")
	}, p)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
