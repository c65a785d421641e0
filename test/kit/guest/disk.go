//go:build linux && amd64

package guest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
)

// tools lists the programs that must be installed.
var tools = []string{"qemu-system-x86_64", "qemu-img", "mmdebstrap", "mkfs.ext4", "go"}

// Require skips the test if no guest can be created. It returns the Debian release of this machine. target is the
// make target that runs the test.
func Require(t *testing.T, target string) (release string) {
	t.Helper()
	if os.Getenv("KUBENERGY_REAL") == "" {
		t.Skipf("creates virtual machines as root: set KUBENERGY_REAL=1 or run make %s", target)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can create the disk of a virtual machine")
	}
	var missing []string
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		t.Skipf("not installed: %s (apt-get install qemu-system-x86 qemu-utils mmdebstrap e2fsprogs)",
			strings.Join(missing, ", "))
	}
	text, err := os.ReadFile("/etc/os-release")
	if err != nil || !strings.Contains(string(text), "\nID=debian\n") {
		t.Skip("this machine does not run Debian, which is required to create the guest")
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			release = name
		}
	}
	return release
}

const (
	packages = "systemd-sysv,udev,dbus,iproute2,linux-image-cloud-amd64,containerd,runc,containernetworking-plugins"
	// Image is the container image of all pods. It contains the program test/real/testdata/burner.
	Image = "localhost/kubenergy/burner:guest"
)

// enabled lists the systemd services that are enabled in the guest.
var enabled = []string{"systemd-networkd", "containerd", "images", "extras", "kubelet"}

// files maps the paths of the files that are added to the Debian installation on the guest's disk to their content.
var files = map[string]string{
	"etc/hostname":                      "guest\n",
	"etc/fstab":                         "/dev/vda / ext4 defaults 0 1\n",
	"etc/systemd/network/guest.network": "[Match]\nName=en*\n[Network]\nDHCP=ipv4\n",
	"etc/containerd/config.toml": `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + Image + `"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
`,
	"etc/cni/net.d/pods.conflist": `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0",
"isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]]}}]}
`,
	"etc/systemd/system/images.service": `[Unit]
After=containerd.service
Requires=containerd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ctr -n k8s.io images import /dev/vdb
[Install]
WantedBy=multi-user.target
`,
	// An archive is unpacked at each start so that the programs under test do not have to be on the disk.
	"etc/systemd/system/extras.service": `[Unit]
ConditionPathExists=/dev/vdc
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=sh -euc 'tar -xf /dev/vdc -C /; systemctl daemon-reload; systemctl start --no-block $(cat /etc/extras)'
[Install]
WantedBy=multi-user.target
`,
	// systemd reads the kubeconfig from the firmware of the machine because it differs in each test.
	"etc/systemd/system/kubelet.service": `[Unit]
After=images.service network-online.target
Requires=images.service
Wants=network-online.target
[Service]
LoadCredential=kubeconfig
ExecStart=/usr/local/bin/kubelet --config=/etc/kubelet.yaml --kubeconfig=%d/kubeconfig
Restart=always
RestartSec=1
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
`,
	// A kubelet with graceful node shutdown reports that it is not ready as soon as the shutdown starts.
	"etc/kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: systemd
makeIPTablesUtilChains: false
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
shutdownGracePeriod: 6s
shutdownGracePeriodCriticalPods: 3s
`,
}

// Disk is the base image of a guest: a root file system and its kernel and initrd. Modules is a directory with the
// kernel modules that a guest without a disk needs to read a directory shared by its host.
type Disk struct{ root, kernel, initrd, Modules string }

// MakeDisk returns the disk for the current kubelet version. The first call builds and caches it and removes the
// cached disks of other versions.
func MakeDisk(t *testing.T, release string) Disk {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kubelet := kit.Kubernetes(t, "kubelet")
	program, err := os.ReadFile(kubelet)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	fmt.Fprint(hash, release, packages, enabled, files, pack, sha256.Sum256(program)) // fmt sorts the keys of maps
	dir := filepath.Join(cache, "kubenergy", fmt.Sprintf("guest-%.6x", hash.Sum(nil)))
	d := Disk{
		filepath.Join(dir, "root.ext4"), filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd"),
		filepath.Join(dir, "modules"),
	}
	if _, err := os.Stat(dir); err == nil {
		return d
	}
	t.Logf("creating the disk of the guest in %s", dir)
	old, err := filepath.Glob(filepath.Join(cache, "kubenergy", "guest-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	draft, err := os.MkdirTemp(filepath.Dir(dir), "guest-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(draft)
	makeRoot(t, release, filepath.Join(draft, "root"), kubelet)
	Command(t, "sh", "-euc", pack, "sh", draft)
	if err := os.Rename(draft, dir); err != nil {
		t.Fatal(err)
	}
	return d
}

// pack creates a disk from the directory root.
const pack = `cd "$1"
mv root/boot/vmlinuz-* vmlinuz
mv root/boot/initrd.img-* initrd
mkdir modules
cp root/lib/modules/*/kernel/drivers/virtio/*.ko root/lib/modules/*/kernel/fs/fuse/*.ko modules
mkfs.ext4 -q -d root root.ext4 3G
rm -r root`

// makeRoot installs the operating system of the guest in a directory.
func makeRoot(t *testing.T, release, root, kubelet string) {
	t.Helper()
	Command(t, "mmdebstrap", "--quiet", "--variant=minbase", "--include="+packages, release, root)
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	Command(t, "install", "-D", kubelet, filepath.Join(root, "usr/local/bin/kubelet"))
	Command(t, "chroot", append([]string{root, "systemctl", "--quiet", "enable"}, enabled...)...)
}

// Command runs a program and fails the test if the program fails.
func Command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
