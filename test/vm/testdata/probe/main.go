// Probe writes information that is only available inside a virtual machine to its second serial port: when the
// counter that it reads was written, and the CPU usage of control groups. If it is the first process of the
// machine, it also loads the required modules and mounts the shared directory.
package main

import (
	"bytes"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	shared  = "/var/scaphandre"
	cgroups = "/sys/fs/cgroup"
)

func main() {
	if os.Getpid() == 1 {
		if err := setUp(); err != nil {
			log.Fatal(err) // the kernel panics and QEMU exits
		}
	}
	line, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	var told time.Time
	for ; ; time.Sleep(rand.N(500 * time.Millisecond)) {
		if at, err := written(); err == nil { // the counter may not exist yet
			fmt.Fprintf(line, "reading %d\n", at.UnixNano())
		}
		if time.Since(told) >= time.Second {
			told = time.Now()
			_, _ = line.Write(used())
		}
	}
}

// setUp prepares a machine that only consists of a kernel and this program.
func setUp() error {
	for _, dir := range []string{"/dev", shared} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devtmpfs", "/dev", "devtmpfs", 0, ""); err != nil {
		return fmt.Errorf("mounting /dev: %w", err)
	}
	for _, name := range []string{
		"virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "fuse", "virtiofs",
	} {
		f, err := os.Open("/modules/" + name + ".ko")
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
			return fmt.Errorf("loading %s: %w", name, err)
		}
		f.Close()
	}
	if err := unix.Mount("kubenergy", shared, "virtiofs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", shared, err)
	}
	return nil
}

// written reads the counter like the agent and returns the time at which the host wrote it.
func written() (at time.Time, err error) {
	f, err := os.Open(shared + "/intel-rapl:0/energy_uj")
	if err != nil {
		return at, err
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 32)); err != nil {
		return at, err
	}
	info, err := f.Stat()
	if err != nil {
		return at, err
	}
	return info.ModTime(), nil
}

// used returns the CPU usage of the services and containers of the machine. The kernel only samples the usage of
// the whole machine.
func used() (lines []byte) {
	var groups []string
	for _, pattern := range []string{"system.slice/*.service", "kubepods.slice/*/cri-*", "kubepods.slice/*/*/cri-*"} {
		found, _ := filepath.Glob(filepath.Join(cgroups, pattern)) // the patterns are valid
		groups = append(groups, found...)
	}
	for _, group := range groups {
		text, _ := os.ReadFile(filepath.Join(group, "cpu.stat")) // the file may not exist
		if rest, ok := bytes.CutPrefix(text, []byte("usage_usec ")); ok {
			usage, _, _ := bytes.Cut(rest, []byte("\n"))
			lines = fmt.Appendf(lines, "cpu %s %s\n", strings.TrimPrefix(group, cgroups), usage)
		}
	}
	return lines
}
