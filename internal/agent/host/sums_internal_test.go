package host

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	podA = "kubepods/burstable/pod" + uidA
	podB = "kubepods/burstable/pod" + uidB
)

// TestEnds verifies that the time that containers and pods used after the last sweep before their end is credited
// once.
func TestEnds(t *testing.T) {
	k := newKernel(t, 2)
	k.make(podA+"/"+idA, podA+"/"+idB, podB+"/"+idB, "system.slice/sshd.service")
	r := k.open(Options{})
	k.burn(podA+"/"+idA, 5*s)
	k.burn(podA+"/"+idB, 5*s)
	k.burn(podB+"/"+idB, 5*s)
	r.sweep()

	// The remaining time of an ended container is that of its pod.
	k.burn(podA+"/"+idA, s)
	k.burn(podA+"/"+idB, s)
	k.remove(podA + "/" + idA)
	r.sweep()
	r.wantEnded(map[string]time.Duration{"pod/" + uidA + "/" + idA: 5 * s})
	r.want(map[string]time.Duration{
		"pod/" + uidA: s, "pod/" + uidA + "/" + idB: 6 * s, "pod/" + uidB: 0, "pod/" + uidB + "/" + idB: 5 * s,
		"system": 0,
	})

	// The remaining time of an ended pod is its own, although only its class includes it. The time of daemons is
	// the system's.
	k.burn(podA+"/"+idB, 2*s)
	k.burn(podB+"/"+idB, s)
	k.burn("system.slice/sshd.service", 3*s)
	k.remove(podA)
	r.sweep()
	r.wantEnded(map[string]time.Duration{"pod/" + uidA: 3 * s, "pod/" + uidA + "/" + idB: 6 * s})
	r.want(map[string]time.Duration{"pod/" + uidB: 0, "pod/" + uidB + "/" + idB: 6 * s, "system": 3 * s})

	// If the class is removed with its pod, the remaining time is the system's, because no counter includes it.
	k.burn(podB+"/"+idB, s)
	k.remove("kubepods")
	r.sweep()
	r.wantEnded(map[string]time.Duration{"pod/" + uidB: 0, "pod/" + uidB + "/" + idB: 6 * s})
	r.want(map[string]time.Duration{"system": 4 * s})
	if r.credited() != k.busy {
		t.Errorf("credited %v, used %v", r.credited(), k.busy)
	}
	if got := r.Stats(); got.Kept != 0 || r.counts(pod, container, slice) != 0 {
		t.Errorf("left behind: %+v", got)
	}
}

// TestTailsAreDivided covers two pods that end at the same time, and one that was created and removed between two
// sweeps.
func TestTailsAreDivided(t *testing.T) {
	k := newKernel(t, 1)
	k.make(podA, podB)
	r := k.open(Options{})
	r.sweep()
	k.burn(podA, 3*s)
	k.burn(podB, s)
	r.sweep()
	k.burn(podA, 3*s/2)
	k.burn(podB, s/2)
	k.remove(podA)
	k.remove(podB)
	r.sweep()
	r.wantEnded(map[string]time.Duration{"pod/" + uidA: 9 * s / 2, "pod/" + uidB: 3 * s / 2})

	k.make(podA)
	r.sweep()
	k.make(podB)
	k.burn(podA, s)
	k.burn(podB, s)
	k.remove(podA)
	k.remove(podB)
	r.sweep()
	if got := r.credit["pod/"+uidA]; got >= 13*s/2 {
		t.Errorf("a pod was credited %v, including the time of another pod", got)
	}
	r.sweep()
	if r.credited() != k.busy {
		t.Errorf("credited %v, used %v", r.credited(), k.busy)
	}
}

// TestNamesComeBack covers a pod and a machine that are recreated with the same name, within a sweep and later.
func TestNamesComeBack(t *testing.T) {
	k := newKernel(t, 1)
	machine := func(i int) string { return fmt.Sprintf(`machine.slice/machine-qemu\x2d%d\x2dweb.scope`, i) }
	k.make(machine(1), podA+"/"+idA)
	r := k.open(Options{})
	k.burn(machine(1), 5*s)
	k.burn(podA+"/"+idA, 5*s)
	r.sweep()
	k.remove(machine(1))
	k.remove(podA)
	k.make(machine(2), podA+"/"+idA)
	k.burn(machine(2), s)
	k.burn(podA+"/"+idA, s)
	r.sweep()
	r.wantEnded(map[string]time.Duration{})
	r.want(map[string]time.Duration{"vm/web": 6 * s, "pod/" + uidA: 0, "pod/" + uidA + "/" + idA: 6 * s, "system": 0})
	k.remove(machine(2))
	r.sweep()
	k.make(machine(3))
	k.burn(machine(3), s)
	r.sweep()
	if got := r.known["vm/web"]; got != s {
		t.Errorf("the recreated machine has %v, want %v", got, s)
	}
	if r.credited() != k.busy {
		t.Errorf("credited %v, used %v", r.credited(), k.busy)
	}
}

// TestIdleIsNotRead verifies that of an idle pod only the pod is read, and of an idle class only the class.
func TestIdleIsNotRead(t *testing.T) {
	k := newKernel(t, 2)
	for i := range 10 {
		for j := range 4 {
			k.make(fmt.Sprintf("kubepods/besteffort/pod%032d/%064d", i, j))
		}
	}
	k.make(podA+"/"+idA, podA+"/"+idB)
	r := k.open(Options{})
	reads := func() int64 {
		before := r.stats.Reads
		r.sweep()
		return r.stats.Reads - before
	}
	r.sweep()
	if got := reads(); got != 1 {
		t.Errorf("%d reads of idle groups, want 1", got)
	}
	k.burn(podA+"/"+idA, s)
	if got, want := reads(), int64(2+2+4+1); got > want {
		t.Errorf("%d reads when a pod with two containers becomes active, want at most %d", got, want)
	}
	k.burn(podA+"/"+idA, s)
	if got, want := reads(), int64(2+1+1+1+1+1); got != want {
		t.Errorf("%d reads of an active pod, want %d: pod, containers and two classes, twice each", got, want)
	}
	k.remove(podA + "/" + idB)
	r.sweep()
	r.wantEnded(map[string]time.Duration{"pod/" + uidA + "/" + idB: 0})
}

// TestFaults injects errors, partial reads and invalid values, and verifies that the affected time is delayed but
// exact.
//
//test:norace
func TestFaults(t *testing.T) {
	for name, fault := range map[string]func(fd int, into []byte) (int, error){
		"EIO":    func(int, []byte) (int, error) { return 0, unix.EIO },
		"ENODEV": func(int, []byte) (int, error) { return 0, unix.ENODEV },
		"empty":  func(int, []byte) (int, error) { return 0, nil },
		"short": func(fd int, into []byte) (int, error) {
			n, err := unix.Pread(fd, into, 0)
			return min(n, 3), err
		},
		"half":    func(_ int, into []byte) (int, error) { return copy(into, "usage_usec 99999"), nil },
		"garbage": func(_ int, into []byte) (int, error) { return copy(into, "\x00\xff\n\n-1"), nil },
		"huge": func(_ int, into []byte) (int, error) {
			return copy(into, "usage_usec 18446744073709551615\nuser_usec 18446744073709551615\nsystem_usec 1\n"), nil
		},
		"zero": func(_ int, into []byte) (int, error) {
			return copy(into, "usage_usec 0\nuser_usec 0\nsystem_usec 0\n"), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t, 2)
			k.make(podA+"/"+idA, podB+"/"+idB)
			r := k.open(Options{})
			k.burn(podA+"/"+idA, s)
			k.burn(podB+"/"+idB, s)
			r.sweep()
			k.burn(podA+"/"+idA, s)
			k.burn(podB+"/"+idB, s)
			bad := r.byID["pod/"+uidA+"/"+idA]
			good, broken := r.io.pread, fileOf(int(bad.fd))
			r.io.pread = func(fd int, into []byte) (int, error) {
				if fileOf(fd) == broken {
					return fault(fd, into)
				}
				return good(fd, into)
			}
			r.sweep()
			a := r.known["pod/"+uidA+"/"+idA]
			if a != s || r.known["pod/"+uidA] != 0 || r.known["system"] != 0 || r.known["pod/"+uidB+"/"+idB] != 2*s {
				t.Errorf("during the fault:\n%s", lines(r.known))
			}
			k.burn(podA+"/"+idA, s)
			k.burn(podA, s)
			r.io.pread = good
			r.sweep()
			r.want(map[string]time.Duration{
				"pod/" + uidA: s, "pod/" + uidA + "/" + idA: 3 * s, "pod/" + uidB: 0, "pod/" + uidB + "/" + idB: 2 * s,
				"system": 0,
			})
		})
	}
}

// TestBrokenForLong verifies that the time of a container that cannot be read for more than a minute is credited to
// its pod.
func TestBrokenForLong(t *testing.T) {
	k := newKernel(t, 1)
	k.make(podA + "/" + idA)
	r := k.open(Options{})
	k.burn(podA+"/"+idA, s)
	r.sweep()
	good, broken := r.io.pread, int(r.byID["pod/"+uidA+"/"+idA].fd)
	r.io.pread = func(fd int, into []byte) (int, error) {
		if fd == broken {
			return 0, unix.EIO
		}
		return good(fd, into)
	}
	for range 62 {
		k.burn(podA+"/"+idA, s)
		r.sweep()
	}
	r.want(map[string]time.Duration{"pod/" + uidA: 62 * s, "pod/" + uidA + "/" + idA: s, "system": 0})
	r.io.pread = good
	k.burn(podA+"/"+idA, s)
	r.sweep()
	k.burn(podA+"/"+idA, s)
	r.sweep()
	if got := r.known["pod/"+uidA+"/"+idA]; got != 2*s {
		t.Errorf("the recovered container has %v, want %v", got, 2*s)
	}
	r.sweep()
	if r.credited() > k.busy {
		t.Errorf("credited %v, used %v", r.credited(), k.busy)
	}
}

// TestNodeCannotBeRead verifies that neither time nor ended consumers are lost if a sweep fails.
func TestNodeCannotBeRead(t *testing.T) {
	k := newKernel(t, 2)
	k.make(podA+"/"+idA, podB)
	r := k.open(Options{})
	k.burn(podA+"/"+idA, s)
	r.sweep()
	good := r.io.pread
	r.io.pread = func(fd int, into []byte) (int, error) {
		if fileOf(fd) == r.busy.name {
			return 0, unix.EIO
		}
		return good(fd, into)
	}
	k.burn(podA+"/"+idA, s)
	k.burn("", s)
	k.remove(podB)
	var sweep Sweep
	if err := r.Sweep(&sweep); err == nil || sweep.Usage != nil || sweep.Ended != nil {
		t.Fatalf("sweep without the node counter: %v, %+v", err, sweep)
	}
	r.io.pread = good
	k.remove(podA)
	r.sweep()
	r.wantEnded(map[string]time.Duration{"pod/" + uidA: 0, "pod/" + uidA + "/" + idA: 2 * s, "pod/" + uidB: 0})
	r.want(map[string]time.Duration{"system": s})
}

// TestNodeFallsBehind covers a node counter that misses time counted by its groups.
func TestNodeFallsBehind(t *testing.T) {
	k := newKernel(t, 2)
	k.make(podA)
	r := k.open(Options{})
	r.sweep()
	for range 100 {
		k.burn(podA, s)
		k.busy -= s / 10
		k.count("")
		r.sweep()
		if behind := r.known["pod/"+uidA] - r.last.Busy; behind > 2*s {
			t.Fatalf("the node counter is %v behind its groups", behind)
		}
	}
	// Then daemons start to compute. They are credited after at most two seconds of two CPUs.
	for range 10 {
		k.burn("", s)
		r.sweep()
	}
	if got := r.known["system"]; got < 8*s {
		t.Errorf("the system was credited %v of 10 s", got)
	}
	if r.lift == 0 {
		t.Error("the counter was not corrected")
	}
}

// TestMax verifies that consumers beyond the limit are accounted to their ancestors, and are tracked once there is
// capacity.
func TestMax(t *testing.T) {
	k := newKernel(t, 1)
	r := k.open(Options{Max: 3})
	r.sweep()
	for i := range 5 {
		p := fmt.Sprintf("kubepods/pod%032d/%064d", i, i)
		k.make(p)
		k.burn(p, s)
		r.sweep()
	}
	if got := r.Stats(); r.consumers() != 3 || got.Folded == 0 {
		t.Errorf("stats %+v, want 3 consumers and some folded", got)
	}
	if r.credited() != 5*s || r.known["system"] != 3*s || len(r.known) != 4 {
		t.Errorf("consumers:\n%s", lines(r.known))
	}
	// A pod that ends next to untracked pods is not credited with their time.
	k.burn(fmt.Sprintf("kubepods/pod%032d/%064d", 4, 4), s)
	k.remove(fmt.Sprintf("kubepods/pod%032d", 0))
	r.sweep()
	if got := r.credit["pod/"+strings.Repeat("0", 32)]; got != 0 {
		t.Errorf("an ended pod was credited %v of other pods", got)
	}
	r.clock += walkInterval
	r.sweep()
	if got := r.Stats(); r.consumers() != 3 {
		t.Errorf("stats %+v, want 3 consumers again", got)
	}
	if r.credited() != k.busy {
		t.Errorf("credited %v, used %v", r.credited(), k.busy)
	}
}

// TestRestartAfterReplacement restarts after a group and its parent have been replaced by others of the same name between
// two sweeps. The groups must not be taken for new ones.
func TestRestartAfterReplacement(t *testing.T) {
	k := newKernel(t, 2)
	options := Options{Groups: []string{"slurm/job_*/step_*"}}
	k.make("slurm/job_1/step_1")
	r := k.open(options)
	k.burn("slurm/job_1/step_1", s)
	r.sweep()
	for _, used := range []time.Duration{s / 2, 3 * s} {
		k.remove("slurm")
		k.make("slurm/job_1/step_1")
		k.burn("slurm/job_1/step_1", used)
		k.burn("slurm/job_1", used)
		r.sweep()
		again := k.open(options)
		if err := again.RestoreState(r.AppendState(nil)); err != nil {
			t.Fatal(err)
		}
		again.credit, again.known, again.clock = r.credit, r.known, r.clock
		r = again
		k.burn("slurm/job_1/step_1", s)
		r.sweep()
		if r.credited() != k.busy {
			t.Errorf("credited %v, used %v:\n%s", r.credited(), k.busy, lines(r.known))
		}
	}
}

// TestAnyHistory randomly creates and removes groups, uses CPU time, injects read failures, delays or drops events,
// and kills the host. It verifies that no time is credited twice, and that none is missing after the failures.
func TestAnyHistory(t *testing.T) {
	seeds := 12
	if os.Getenv(long) != "" {
		seeds = 500
	}
	for seed := range seeds {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d v%d", seed, version), func(t *testing.T) { anyHistory(t, uint64(seed), version) })
		}
	}
}

func anyHistory(t *testing.T, seed uint64, version int) {
	random := rand.New(rand.NewPCG(seed, uint64(version)))
	k := newKernel(t, version)
	options := Options{Groups: []string{"slurm/job_*/step_*", "kubepods/*/*/*/job_*"}, Max: 5 + random.IntN(40)}
	r := k.open(options)
	blind := seed%4 == 1
	faults := seed%2 == 1
	kills := seed%3 == 1
	if blind {
		r.watch.close()
		r.watch.full = true
	}
	good := k.pread
	pread := func(fd int, into []byte) (int, error) {
		if faults && random.IntN(20) == 0 && fileOf(fd) != r.busy.name {
			switch random.IntN(3) {
			case 0:
				return 0, unix.EIO
			case 1:
				return 0, nil
			default:
				return copy(into, "12"), nil
			}
		}
		return good(fd, into)
	}
	for range 60 {
		for range random.IntN(6) {
			disturb(k, random)
		}
		r.io.pread = pread
		r.sweep()
		if kills && random.IntN(8) == 0 {
			state := r.AppendState(nil)
			disturb(k, random)
			again := k.open(options)
			if err := again.RestoreState(state); err != nil {
				t.Fatal(err)
			}
			again.credit, again.known, again.clock = r.credit, r.known, r.clock
			if blind {
				again.watch.close()
				again.watch.full = true
			}
			r = again
		}
		if r.credited() > k.busy {
			t.Fatalf("credited %v, used %v", r.credited(), k.busy)
		}
	}
	r.io.pread = good
	r.sweep()
	r.sweep()
	if r.credited() != k.busy {
		t.Fatalf("credited %v, used %v:\n%s", r.credited(), k.busy, lines(r.known))
	}
	if r.lift != 0 {
		t.Fatalf("corrected: %+v", r.Stats())
	}
}

// disturb performs one random operation.
func disturb(k *kernel, random *rand.Rand) {
	paths := slices.Sorted(maps.Keys(k.used))
	switch n := random.IntN(10); {
	case n < 3 || len(paths) == 0:
		pod := fmt.Sprintf("kubepods/%s/pod%032d", []string{"burstable", "besteffort"}[random.IntN(2)], random.IntN(8))
		switch random.IntN(6) {
		case 0:
			k.make(fmt.Sprintf("slurm/job_%d/step_%d", random.IntN(3), random.IntN(3)))
		case 1:
			k.make(fmt.Sprintf(`machine.slice/machine-qemu\x2d%d\x2dweb%d.scope`, random.IntN(9), random.IntN(3)))
		case 2:
			k.make("system.slice/x.service")
		case 3:
			k.make(fmt.Sprintf("%s/%064d/job_%d", pod, random.IntN(3), random.IntN(2)))
		default:
			k.make(fmt.Sprintf("%s/%064d", pod, random.IntN(3)))
		}
	case n < 4:
		k.remove(paths[random.IntN(len(paths))])
	case n < 5:
		k.burn("", time.Duration(random.IntN(1e6))*time.Microsecond)
	default:
		k.burn(paths[random.IntN(len(paths))], time.Duration(random.IntN(1e6))*time.Microsecond)
	}
}
