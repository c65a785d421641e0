//go:build linux && amd64

package guest

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
)

// Machine is a virtual machine that is either on or off. Its disk is preserved when it is switched off.
type Machine struct {
	Dir  string // contains the disk and the logs
	kvm  bool
	qemu []string // command line
	mu   sync.Mutex
	runs []*kit.Process // one for each start of the machine
}

// Options configures a guest.
type Options struct {
	Name, UUID string
	Kubeconfig string   // path of the kubelet's kubeconfig
	Extras     string   // path of an archive that is unpacked when the guest starts; optional
	Args       []string // additional arguments of QEMU
	Network    string   // additional options of QEMU's user network
}

// New creates a guest with a kubelet. The guest is initially off and is stopped when the test ends.
func New(t *testing.T, d Disk, dir string, o Options) *Machine {
	t.Helper()
	own := filepath.Join(dir, "disk.qcow2")
	Command(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", d.root, own)
	pods := filepath.Join(dir, "burner.tar") // attached as a raw disk
	kit.WriteImage(t, Image, kit.Build(t, "./test/real/testdata/burner"), pods)
	args := []string{
		"-smp", "2", "-m", "2G", "-uuid", o.UUID, "-initrd", d.initrd,
		"-append", "root=/dev/vda rw console=ttyS0 systemd.hostname=" + o.Name,
		"-drive", "file=" + own + ",if=virtio", "-drive", "file=" + pods + ",format=raw,readonly=on,if=virtio",
		"-nic", "user,model=virtio-net-pci" + o.Network,
		"-fw_cfg", "name=opt/io.systemd.credentials/kubeconfig,file=" + o.Kubeconfig,
	}
	if o.Extras != "" {
		args = append(args, "-drive", "file="+o.Extras+",format=raw,readonly=on,if=virtio")
	}
	return Bare(t, d, dir, o.Name, append(args, o.Args...)...)
}

// Bare creates a guest from the kernel of the disk and the given QEMU arguments. The guest is initially off and is
// stopped when the test ends.
func Bare(t *testing.T, d Disk, dir, name string, args ...string) *Machine {
	t.Helper()
	m := &Machine{Dir: dir}
	accelerator, cpu := "tcg,thread=multi", "max"
	if m.kvm = hasKVM(); m.kvm {
		accelerator, cpu = "kvm", "host"
	}
	m.qemu = append([]string{
		"qemu-system-x86_64", "-name", name, "-machine", "q35", "-accel", accelerator, "-cpu", cpu,
		"-kernel", d.kernel, "-qmp", "unix:" + m.monitor() + ",server=on,wait=off", "-display", "none",
		"-serial", "stdio", "-no-reboot",
	}, args...)
	t.Cleanup(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, p := range m.runs {
			p.End(t)
		}
	})
	return m
}

// hasKVM reports whether KVM can run the guest's kernel. Without hardware virtualization, for example in a virtual
// machine that uses PVM, KVM can only run kernels that were built for it.
func hasKVM() bool {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	kvm.Close()
	text, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && regexp.MustCompile(`(?m)^flags\s*:.* (vmx|svm)( |$)`).Match(text)
}

// String describes how the guest runs.
func (m *Machine) String() string {
	if m.kvm {
		return "with KVM"
	}
	return "emulated"
}

// Patience returns the factor by which timeouts are multiplied. It is larger if the guest is emulated.
func (m *Machine) Patience() time.Duration {
	if m.kvm {
		return 1
	}
	return 5
}

func (m *Machine) monitor() string { return filepath.Join(m.Dir, "qmp") }

// On returns the process of the guest, or nil if the guest is off.
func (m *Machine) On() *kit.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.runs); n > 0 && !m.runs[n-1].Ended() {
		return m.runs[n-1]
	}
	return nil
}

// Start switches the guest on. QEMU inherits files as the descriptors 3, 4 and so on.
func (m *Machine) Start(files ...*os.File) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	cmd := exec.Command(m.qemu[0], m.qemu[1:]...)
	cmd.ExtraFiles = files
	p, err := kit.Launch(m.Dir, fmt.Sprint("guest", len(m.runs)), cmd)
	if err == nil {
		m.runs = append(m.runs, p)
	}
	return err
}

// PressPowerButton requests a shutdown of the guest's operating system through ACPI.
func (m *Machine) PressPowerButton() error {
	c, err := net.Dial("unix", m.monitor())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	from, to := json.NewDecoder(c), json.NewEncoder(c)
	var greeting struct{ QMP any }
	if err := from.Decode(&greeting); err != nil {
		return err
	}
	for _, command := range []string{"qmp_capabilities", "system_powerdown"} {
		if err := to.Encode(map[string]string{"execute": command}); err != nil {
			return err
		}
		var answer struct{ Return, Error any }
		for answer.Return == nil && answer.Error == nil { // skip events
			if err := from.Decode(&answer); err != nil {
				return err
			}
		}
		if answer.Error != nil {
			return fmt.Errorf("%s: %v", command, answer.Error)
		}
	}
	return nil
}

// Share shares a directory with one guest over virtiofs, using the tag that deploy/systemd/var-scaphandre.mount
// mounts. It returns the virtiofsd process and the arguments to pass to QEMU. memory must equal the memory size of
// the guest.
func Share(t *testing.T, dir, folder, memory string) (p *kit.Process, args []string) {
	t.Helper()
	socket := filepath.Join(dir, "fs")
	program, options := virtiofsd(t)
	for i := range options {
		options[i] = strings.ReplaceAll(options[i], "FOLDER", folder)
	}
	p = kit.Start(t, dir, "virtiofsd", exec.Command(program, append(options, "--socket-path="+socket)...))
	kit.Eventually(t, 10*time.Second, "virtiofsd listens", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	}, p)
	return p, []string{
		"-object", "memory-backend-memfd,id=memory,share=on,size=" + memory, "-numa", "node,memdev=memory",
		"-chardev", "socket,id=fs,path=" + socket, "-device", "vhost-user-fs-pci,chardev=fs,tag=kubenergy",
	}
}

// virtiofsd returns the path of the installed virtiofsd and its options. The version bundled with QEMU up to 7.2
// has different options.
func virtiofsd(t *testing.T) (program string, options []string) {
	t.Helper()
	const own, qemus = "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"
	if _, err := os.Stat(own); err == nil {
		return own, []string{"--shared-dir=FOLDER", "--cache=never", "--readonly", "--sandbox=none"}
	}
	if _, err := os.Stat(qemus); err != nil {
		t.Skipf("neither %s nor %s exists: apt-get install virtiofsd", own, qemus)
	}
	return qemus, []string{"-o", "source=FOLDER", "-o", "cache=none"}
}
