package host

import (
	"math"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// weightOf returns the weight that each conversion yields for a request.
func (c conversion) weightOf(milli float64) int {
	shares := min(max(math.Floor(milli*1024/1000), 2), 262144)
	if c == linear {
		return int(1 + (shares-2)*9999/262142)
	}
	l := math.Log2(shares)
	return int(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

// TestKubeletsRule detects the conversion on nodes with guaranteed pods only, with and without limits.
func TestKubeletsRule(t *testing.T) {
	for _, limits := range []bool{true, false} {
		open := 0
		for _, rule := range []conversion{linear, quadratic} {
			for _, cpus := range []float64{2, 4, 8, 16, 32, 48, 64, 96, 128, 192} {
				for reserved := 3.0; reserved <= 20; reserved++ {
					allocatable := 1000 * cpus * (1 - reserved/100)
					k := newKernel(t, 2)
					k.make("kubepods/pod"+uidA, "kubepods/pod"+uidB)
					k.shares("kubepods", rule.weightOf(allocatable))
					for uid, milli := range map[string]float64{uidA: 500, uidB: 1100} {
						k.shares("kubepods/pod"+uid, rule.weightOf(milli))
						limit := "max"
						if limits {
							limit = strconv.Itoa(int(milli) * 100)
						}
						k.write(filepath.Join(k.dir, "kubepods/pod"+uid, "cpu.max"), limit+" 100000\n")
					}
					r := k.open(Options{})
					r.cpus = cpus
					r.weigh.next = math.MaxInt64
					r.sweep()
					switch got := r.kubeletsRule(); {
					case got == rule:
					case limits || rule == quadratic || cpus < 64:
						t.Errorf("%v CPUs, %v %% reserved, limits %v: rule %d detected as %d", cpus, reserved, limits,
							rule, got)
					default:
						open++
					}
				}
			}
		}
		if !limits {
			t.Logf("%d nodes with at least 64 CPUs and an old kubelet were detected as new ones", open)
		}
	}
}

// TestPodsFillTheNode distinguishes an old kubelet on a large node from a new one by the total requests of its
// pods.
func TestPodsFillTheNode(t *testing.T) {
	k := newKernel(t, 2)
	k.make("kubepods")
	k.shares("kubepods", quadratic.weightOf(153_600))
	for i := range 14 {
		pod := "kubepods/pod" + strconv.Itoa(100+i)
		k.make(pod)
		k.shares(pod, quadratic.weightOf(8000))
	}
	r := k.open(Options{})
	r.cpus = 192
	r.weigh.next = math.MaxInt64
	r.sweep()
	if err := linear.allocatableError(r.byDir[filepath.Join(k.dir, "kubepods")], 192_000); err < impossible {
		t.Errorf("the old conversion is not impossible for overcommitted pods: %v", err)
	}
	if r.kubeletsRule() != quadratic {
		t.Error("a new kubelet was detected as an old one")
	}
}

// TestNoMoreThanTheNodeHas covers small nodes with a large reservation. By the old conversion, their weight would
// exceed their capacity.
func TestNoMoreThanTheNodeHas(t *testing.T) {
	for _, cpus := range []float64{2, 4, 8} {
		k := newKernel(t, 2)
		k.make("kubepods/pod" + uidA)
		k.shares("kubepods", quadratic.weightOf(600*cpus))
		k.shares("kubepods/pod"+uidA, quadratic.weightOf(100))
		r := k.open(Options{})
		r.cpus = cpus
		r.weigh.next = math.MaxInt64
		r.sweep()
		if r.kubeletsRule() != quadratic {
			t.Errorf("%v CPUs: a new kubelet was detected as an old one", cpus)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]float64{"200000 100000\n": 2000, "5000 10000\n": 500} {
		if got, ok := parseLimit([]byte(text)); !ok || got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "max 100000\n", "0 100000\n", "5 0\n", "5\n", "5 1", "5 x\n", "-1 5\n"} {
		if got, ok := parseLimit([]byte(text)); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func FuzzLimit(f *testing.F) {
	f.Add([]byte("200000 100000\n"))
	f.Add([]byte("max 100000\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		if milli, ok := parseLimit(text); ok && !(milli > 0 && milli < math.MaxFloat64) {
			t.Errorf("%q is %v", text, milli)
		}
	})
}

// TestVCPUs verifies that the weight of a machine follows from its virtual CPUs.
func TestVCPUs(t *testing.T) {
	for _, version := range []int{1, 2} {
		k := newKernel(t, version)
		old, libvirt := "machine/old.libvirt-qemu", `machine.slice/machine-qemu\x2d3\x2dweb.scope`
		k.make(old+"/vcpu0", old+"/vcpu1", old+"/emulator", libvirt+"/libvirt/emulator", libvirt+"/libvirt/vcpux",
			"vms/own")
		for i := range 12 {
			k.make(libvirt + "/libvirt/vcpu" + strconv.Itoa(i))
		}
		k.shares(libvirt, 100)
		k.write(filepath.Join(k.dir, "vms/own", "cgroup.procs"), "101\n")
		k.process(101, "qemu-kvm -name own -smp 4,sockets=4", "/vms/own", s)
		k.process(102, "qemu-kvm -name none", "/", s)
		k.process(103, "qemu-kvm -name both -smp sockets=2,cores=3,threads=2", "/", s)
		k.mkdir(filepath.Join(k.proc, "sys/kernel/random"))
		k.write(filepath.Join(k.proc, "sys/kernel/random/boot_id"), hash+"\n")
		r := k.open(Options{VMs: true})
		check := func(r *rig, want map[string]uint64) {
			t.Helper()
			for _, u := range r.sweep().Usage {
				if want[u.ID] != u.Weight {
					t.Errorf("version %d: weight of %s = %d, want %d", version, u.ID, u.Weight, want[u.ID])
				}
			}
		}
		want := map[string]uint64{"vm/old": 2000, "vm/web": 12_000, "vm/own": 4000, "vm/none": 1000, "vm/both": 12_000}
		check(r, want)
		again := k.open(Options{VMs: true})
		again.sweep()
		if err := again.RestoreState(r.AppendState(nil)); err != nil {
			t.Fatal(err)
		}
		check(again, want)
	}
}

func TestVCPUsOf(t *testing.T) {
	for line, want := range map[string]int{
		"kvm": 1, "kvm\x00-smp\x004": 4, "kvm\x00--smp\x00cpus=3,maxcpus=8": 3, "kvm\x00-smp\x00maxcpus=8,sockets=2": 8,
		"kvm\x00-smp\x00sockets=2,dies=1,cores=4,threads=2": 16, "kvm\x00-smp\x002\x00-smp\x006": 6, "kvm\x00-smp": 0,
		"kvm\x00-smp\x00x": 0, "kvm\x00-smp\x00-4": 0, "kvm\x00-smp\x0099999": 0,
		"kvm\x00-smp\x00sockets=8192,cores=8192": 0,
	} {
		if got := vcpusOf([]byte(line + "\x00")); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}

// TestRestoreAfterSweep restores a state into a host that has already swept, and verifies that all running
// consumers are kept.
func TestRestoreAfterSweep(t *testing.T) {
	for _, complete := range []bool{true, false} {
		k := newKernel(t, 2)
		k.make(podA + "/" + idA)
		k.mkdir(filepath.Join(k.proc, "sys/kernel/random"))
		k.write(filepath.Join(k.proc, "sys/kernel/random/boot_id"), hash+"\n")
		k.burn(podA+"/"+idA, s)
		r := k.open(Options{})
		r.sweep()
		if !complete {
			r.stats.Truncated = 1
		}
		state := r.AppendState(nil)
		k.make(podB + "/" + idB)
		k.burn(podB+"/"+idB, s)
		again := k.open(Options{})
		if again.CPUs() != 2 {
			t.Errorf("%v CPUs before a sweep, want 2", again.CPUs())
		}
		again.sweep()
		k.remove(podA)
		if err := again.RestoreState(state); err != nil {
			t.Fatal(err)
		}
		again.known, again.credit = r.known, r.credit
		for range 2 {
			again.sweep()
		}
		want := time.Duration(0) // it may have run before the state was saved
		if complete {
			want = s
		}
		got, ok := again.known["pod/"+uidB+"/"+idB]
		if !ok || got != want || again.credited() != k.busy {
			t.Errorf("complete: %v: %v, %v of %v", complete, again.known, again.credited(), k.busy)
		}
	}
}
