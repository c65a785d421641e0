//go:build linux && amd64

package guest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/lab"
	"github.com/kubenergy/kubenergy/test/kit"
)

// systemUUID is what the guest's firmware says.
const systemUUID = "5ca1ab1e-0000-4000-8000-00000000cafe"

// machine is the guest as its management controller has it. Its disk outlives its power.
type machine struct {
	dir   string
	kvm   bool
	qemu  []string // command
	mu    sync.Mutex
	runs  []*kit.Process // one for each time it was on
	asked []request
}

// request is a reset that was asked for.
type request struct {
	kind string
	at   time.Time
}

func newMachine(t *testing.T, d disk, dir, kubeconfig string) *machine {
	t.Helper()
	m := &machine{dir: dir}
	accelerator, cpu := "tcg,thread=multi", "max"
	if m.kvm = hasKVM(); m.kvm {
		accelerator, cpu = "kvm", "host"
	}
	own := filepath.Join(dir, "disk.qcow2")
	command(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", d.root, own)
	pods := filepath.Join(dir, "burner.tar") // a disk as it is
	kit.WriteImage(t, image, kit.Build(t, "./test/real/testdata/burner"), pods)
	m.qemu = []string{
		"qemu-system-x86_64", "-machine", "q35", "-accel", accelerator, "-cpu", cpu, "-smp", "2", "-m", "2G",
		"-uuid", systemUUID, "-kernel", d.kernel, "-initrd", d.initrd, "-append", "root=/dev/vda rw console=ttyS0",
		"-drive", "file=" + own + ",if=virtio", "-drive", "file=" + pods + ",format=raw,readonly=on,if=virtio",
		"-nic", "user,model=virtio-net-pci",
		"-fw_cfg", "name=opt/io.systemd.credentials/kubeconfig,file=" + kubeconfig,
		"-qmp", "unix:" + m.monitor() + ",server=on,wait=off", "-display", "none", "-serial", "stdio", "-no-reboot",
	}
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
func (m *machine) String() string {
	if m.kvm {
		return "with KVM"
	}
	return "emulated"
}

func (m *machine) monitor() string { return filepath.Join(m.dir, "qmp") }

// on returns the guest's process, nil if it is off.
func (m *machine) on() *kit.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.runs); n > 0 && !m.runs[n-1].Ended() {
		return m.runs[n-1]
	}
	return nil
}

func (m *machine) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := kit.Launch(m.dir, fmt.Sprint("guest", len(m.runs)), exec.Command(m.qemu[0], m.qemu[1:]...))
	if err == nil {
		m.runs = append(m.runs, p)
	}
	return err
}

// system is the guest in Redfish, with a UUID that need not be its own.
func (m *machine) system(uuid string) lab.System {
	return lab.System{UUID: uuid, State: func() string {
		if m.on() != nil {
			return "On"
		}
		return "Off"
	}, Reset: m.reset}
}

func (m *machine) reset(kind string) (status int) {
	m.mu.Lock()
	m.asked = append(m.asked, request{kind, time.Now()})
	m.mu.Unlock()
	var err error
	switch on := m.on(); {
	case kind == "On" && on == nil:
		err = m.start()
	case kind == "GracefulShutdown" && on != nil:
		err = m.pressPowerButton()
	case kind != "On" && kind != "GracefulShutdown":
		return http.StatusBadRequest
	}
	if err != nil {
		return http.StatusInternalServerError
	}
	return http.StatusNoContent
}

// pressPowerButton asks the guest's operating system to shut down, as ACPI does.
func (m *machine) pressPowerButton() error {
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

// requests returns the resets that were asked for so far.
func (m *machine) requests() []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]request(nil), m.asked...)
}

// when returns when a reset was first asked for.
func (m *machine) when(kind string) (at time.Time) {
	for _, r := range m.requests() {
		if r.kind == kind {
			return r.at
		}
	}
	return time.Time{}
}
