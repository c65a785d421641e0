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

// Machine is a guest, on or off. Its disk outlives its power.
type Machine struct {
	Dir  string // of its disk and log
	kvm  bool
	qemu []string // command
	mu   sync.Mutex
	runs []*kit.Process // one for each time it was on
}

// Options are what guests differ in.
type Options struct {
	Name, UUID string
	Kubeconfig string   // of its kubelet
	Extras     string   // archive that is unpacked into the guest when it starts; "": none
	Args       []string // further ones of QEMU
	Network    string   // further options of QEMU's user network
}

// New makes a guest with a kubelet, which is off. It ends with the test.
func New(t *testing.T, d Disk, dir string, o Options) *Machine {
	t.Helper()
	own := filepath.Join(dir, "disk.qcow2")
	Command(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", d.root, own)
	pods := filepath.Join(dir, "burner.tar") // a disk as it is
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

// Bare makes a guest that is off, of the disk's kernel and what the arguments give it. It ends with the test.
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

// hasKVM reports whether this machine runs a guest's kernel itself. Without help of its processor, as in a virtual
// machine whose KVM is PVM, it runs only kernels that were made for that.
func hasKVM() bool {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	kvm.Close()
	text, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && regexp.MustCompile(`(?m)^flags\s*:.* (vmx|svm)( |$)`).Match(text)
}

// How the guest runs, in words.
func (m *Machine) String() string {
	if m.kvm {
		return "with KVM"
	}
	return "emulated"
}

// Patience is how much longer than with KVM all may take.
func (m *Machine) Patience() time.Duration {
	if m.kvm {
		return 1
	}
	return 5
}

func (m *Machine) monitor() string { return filepath.Join(m.Dir, "qmp") }

// On returns the guest's process, nil if it is off.
func (m *Machine) On() *kit.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.runs); n > 0 && !m.runs[n-1].Ended() {
		return m.runs[n-1]
	}
	return nil
}

// Start switches the guest on. files are open in QEMU as 3, 4, ….
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

// PressPowerButton asks the guest's operating system to shut down, as ACPI does.
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
		for answer.Return == nil && answer.Error == nil { // events come between
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

// Share shares a folder with one guest by virtiofs, under the tag that deploy/systemd/var-scaphandre.mount mounts. It
// returns the process, and what QEMU must be told, which has to have as much memory.
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

// virtiofsd is the one that is installed, and its options; the one that came with QEMU up to 7.2 has others.
func virtiofsd(t *testing.T) (program string, options []string) {
	t.Helper()
	const own, qemus = "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"
	if _, err := os.Stat(own); err == nil {
		return own, []string{"--shared-dir=FOLDER", "--cache=never", "--readonly", "--sandbox=none"}
	}
	if _, err := os.Stat(qemus); err != nil {
		t.Skipf("there is neither %s nor %s: apt-get install virtiofsd", own, qemus)
	}
	return qemus, []string{"-o", "source=FOLDER", "-o", "cache=none"}
}
