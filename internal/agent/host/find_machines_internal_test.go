package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestProcesses finds machines by their processes: in their own group, in a shared one, in a pod, and already
// known.
func TestProcesses(t *testing.T) {
	for _, version := range []int{1, 2} {
		k := newKernel(t, version)
		known := `machine.slice/machine-qemu\x2d3\x2dweb.scope`
		inPod := podA + "/" + idA
		k.make("vms/own", "vms/shared", "vms/parent/child", known+"/libvirt", inPod)
		for g, pids := range map[string]string{"vms/own": "101\n", "vms/shared": "102\n103\n", "vms/parent": "107\n"} {
			k.write(filepath.Join(k.dir, g, "cgroup.procs"), pids)
		}
		k.process(101, "/usr/bin/qemu-system-x86_64 -name guest=own,debug-threads=on", "/vms/own", 9*s)
		k.process(102, "kvm -name shared", "/vms/shared", s)
		k.process(103, "qemu-system-aarch64 -uuid 1234", "/vms/shared", 2*s)
		k.process(104, "qemu-system-x86_64 -name guest=web", "/"+known+"/libvirt", 9*s)
		k.process(105, "qemu-system-x86_64 -name guest=inpod", "/"+inPod, 9*s)
		k.process(106, "bash -name x", "/", 9*s)
		k.process(107, "qemu-kvm -m 1", "/vms/parent", 3*s)
		k.process(108, "qemu-kvm -name shared", "/../x", 4*s)
		k.process(109, "", "/", 0)
		k.burn("vms/own", 5*s)
		k.burn("vms/shared", 3*s)
		k.burn("vms/parent", 3*s)
		k.burn(known, 6*s)
		k.burn(inPod, 7*s)
		k.burn("", 10*s)
		r := k.open(Options{VMs: true})
		r.sweep()
		r.want(map[string]time.Duration{
			"vm/own": 5 * s, "vm/shared": s, "vm/1234": 2 * s, "vm/web": 6 * s, "vm/pid-107": 3 * s,
			"vm/shared#pid-108": 4 * s,
			"pod/" + uidA:       0, "pod/" + uidA + "/" + idA: 7 * s, "system": 6 * s,
		})
		if got, want := strings.Join(r.VMs(), "; "), "1234; own; pid-107; shared; shared#pid-108; web"; got != want {
			t.Errorf("VMs() =\n%s, want\n%s", got, want)
		}

		// A machine that is found late counts from then on, another machine ends, and a PID is reused.
		k.process(110, "kvm -name late", "/", 5*s)
		if err := os.RemoveAll(filepath.Join(k.proc, "102")); err != nil {
			t.Fatal(err)
		}
		k.write(filepath.Join(k.proc, "103", "stat"), "103 (x) S 1 2 3 4 5 6 7 8 9 10 1 1 99 99 20 0 1 0 4242 1 2\n")
		r.io.pread = func(fd int, into []byte) (int, error) {
			if name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); strings.Contains(name, "/102/") {
				return 0, unix.ESRCH
			}
			return k.pread(fd, into)
		}
		r.closeFile(r.byID["vm/shared"])
		r.clock += searchInterval
		r.sweep()
		r.wantEnded(map[string]time.Duration{"vm/shared": s, "vm/1234": 2 * s})
		if got, ok := r.known["vm/late"]; !ok || got != 0 {
			t.Errorf("the machine found late has %v, %v", got, ok)
		}
		k.stat(110, 7*s)
		k.burn("", 2*s)
		r.sweep()
		if got := r.known["vm/late"]; got != 2*s {
			t.Errorf("the machine found late has %v, want %v", got, 2*s)
		}
	}
}

// TestAProcessThatPanics verifies that a process is ignored if its command line causes a panic, and that other
// machines are found.
func TestAProcessThatPanics(t *testing.T) {
	k := newKernel(t, 2)
	k.process(101, "kvm -name a", "/", s)
	k.process(102, "kvm -name b", "/", s)
	r := k.open(Options{VMs: true})
	r.io.pread = func(fd int, into []byte) (int, error) {
		if name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); strings.HasSuffix(name, "/101/cmdline") {
			panic("planted")
		}
		return k.pread(fd, into)
	}
	r.sweep()
	if got := r.VMs(); len(got) != 1 || r.vms.running != nil {
		t.Errorf("VMs() = %v", got)
	}
}

// TestHeldUp verifies that sweeps continue while a process blocks reading its command line, and that the other
// machines are found later.
func TestHeldUp(t *testing.T) {
	k := newKernel(t, 2)
	k.process(101, "kvm -name a", "/", s)
	k.process(102, "kvm -name b", "/", s)
	r := k.open(Options{VMs: true})
	var out strings.Builder
	r.log = slog.New(slog.NewTextHandler(&out, nil))
	held, asked := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	r.vms.wait = time.Millisecond
	r.io.pread = func(fd int, into []byte) (int, error) {
		if name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); strings.HasSuffix(name, "/101/cmdline") {
			once()
			<-held
		}
		return k.pread(fd, into)
	}
	r.sweep()
	<-asked
	began := time.Now()
	for range 60 {
		r.sweep()
	}
	if took := time.Since(began); took > time.Minute || len(r.VMs()) != 0 {
		t.Errorf("60 sweeps took %v; VMs() = %v", took, r.VMs())
	}
	if n := strings.Count(out.String(), "is blocked"); n != 1 || !strings.Contains(out.String(), "pid=101") {
		t.Errorf("logged %d times: %s", n, &out)
	}
	if err := r.vms.close(); !errors.Is(err, errHeldUp) { // must not block
		t.Errorf("close() while blocked: %v", err)
	}
	close(held)
	kit.Eventually(t, 10*time.Second, "both machines are found", func() bool {
		r.sweep()
		return len(r.VMs()) == 2
	})
	r.want(map[string]time.Duration{"vm/a": 0, "vm/b": 0, "system": 0})
}

// TestProcessesTakeHalfTheRoom verifies the limit for processes that look like virtual machines.
func TestProcessesTakeHalfTheRoom(t *testing.T) {
	k := newKernel(t, 2)
	for pid := 101; pid < 120; pid++ {
		k.process(pid, fmt.Sprint("kvm -name m", pid), "/", s)
	}
	k.make(podA + "/" + idA)
	r := k.open(Options{VMs: true, Max: 10})
	r.sweep()
	if len(r.VMs()) != 5 || r.Stats().Folded < 14 {
		t.Errorf("%d machines, %d folded", len(r.VMs()), r.Stats().Folded)
	}
	for pid := 101; pid < 103; pid++ {
		if err := os.RemoveAll(filepath.Join(k.proc, strconv.Itoa(pid))); err != nil {
			t.Fatal(err)
		}
		r.closeFile(r.byID[fmt.Sprint("vm/m", pid)])
	}
	r.sweep()
	r.clock += searchInterval
	r.sweep()
	if len(r.VMs()) != 5 {
		t.Errorf("%d machines after two ended and two more were found", len(r.VMs()))
	}
}

// TestNumbersAreUsedAgain verifies that a machine is found if its process reuses the PID of another process.
func TestNumbersAreUsedAgain(t *testing.T) {
	k := newKernel(t, 2)
	k.process(101, "bash", "/", s)
	r := k.open(Options{VMs: true})
	look := func() {
		r.clock += searchInterval
		r.sweep()
	}
	for range 3 {
		look()
	}
	k.process(101, "kvm -name a", "/", s)
	name := filepath.Join(k.proc, "101", "stat")
	k.write(name, "101 (x) S 1 2 3 4 5 6 7 8 9 10 1 1 99 99 20 0 1 0 4242 1 2\n")
	for range identifying {
		look()
	}
	if len(r.VMs()) != 1 {
		t.Error("the machine was not found")
	}
}

func TestOpenSaysWhichFolder(t *testing.T) {
	k := newKernel(t, 2)
	for want, o := range map[string]Options{
		"--cgroup-root: stat /nowhere": {Root: "/nowhere", Proc: k.proc},
		"--cgroup-root " + k.proc:      {Root: k.proc, Proc: k.proc},
		"--proc-root: stat /nowhere":   {Root: k.dir, Proc: "/nowhere"},
	} {
		if _, err := Open(o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
}

// TestWeights verifies that requested CPU is read from control groups and assigned to consumers.
func TestWeights(t *testing.T) {
	weights := func(r *rig) map[string]uint64 {
		r.sweep()
		got := map[string]uint64{}
		for _, u := range r.last.Usage {
			got[strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(u.ID, idA, "a"), idB, "b"), uidA,
				"A")] = u.Weight
		}
		return got
	}
	vmDir := `machine.slice/machine-qemu\x2d3\x2dweb.scope`

	k := newKernel(t, 1)
	k.make(podA+"/"+idA, podA+"/"+idB, vmDir)
	r := k.open(Options{})
	k.shares(podA, 768)
	k.shares(podA+"/"+idA, 512)
	k.shares(podA+"/"+idB, 2)
	k.shares(vmDir, 2048)
	got := weights(r)
	if got["pod/A"] != 250 || got["pod/A/a"] != 500 || got["pod/A/b"] != 0 || got["vm/web"] != 2000 ||
		got["system"] != 0 {
		t.Errorf("version 1: %v", got)
	}
	// Weights that a runtime sets shortly after creating a group are read in the next tick, later changes within a
	// minute.
	k.make(podB + "/" + idB)
	weights(r)
	k.shares(podB+"/"+idB, 1024)
	k.shares(podB, 1024)
	if got := weights(r); got["pod/"+uidB+"/b"] != 1000 || got["pod/"+uidB] != 0 {
		t.Errorf("a new pod: %v", got)
	}
	k.shares(podA, 1024)
	k.shares(podA+"/"+idA, 1024)
	for range 61 {
		got = weights(r)
	}
	if got["pod/A"] != 0 || got["pod/A/a"] != 1000 {
		t.Errorf("after a minute: %v", got)
	}
	k.remove(podA + "/" + idA)
	if got := weights(r); got["pod/A"] != 1000 {
		t.Errorf("after a container ended: %v", got)
	}

	// Version 2, with the weights of both conversions for 2 CPUs and requests of 100m + 250m.
	for rule, w := range map[conversion][5]int{
		linear:    {79, 14, 14, 4, 10},   // of 2048, 358, 358, 102 and 256 shares
		quadratic: {174, 45, 45, 17, 35}, // of the same shares
	} {
		k := newKernel(t, 2)
		k.make(podA+"/"+idA, podA+"/"+idB)
		for i, path := range []string{"kubepods", "kubepods/burstable", podA, podA + "/" + idA, podA + "/" + idB} {
			k.shares(path, w[i])
		}
		r := k.open(Options{})
		weights(r)
		got := weights(r)
		for id, want := range map[string]float64{"pod/A": 0, "pod/A/a": 100, "pod/A/b": 250} {
			if diff := float64(got[id]) - want; diff > 27 || diff < -27 {
				t.Errorf("rule %d: %s has %d, want about %v (%v)", rule, id, got[id], want, got)
			}
		}
		if r.weigh.rule != rule {
			t.Errorf("rule %d was detected as %d", rule, r.weigh.rule)
		}
	}
}
