package host

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/host/hosttest"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// openReal opens a Host on the control groups of this machine.
func openReal(t testing.TB, mount string, o Options) *Host {
	t.Helper()
	o.Root, o.Proc, o.Max = cmp.Or(mount, "/sys/fs/cgroup"), "/proc", cmp.Or(o.Max, 5000)
	h, err := Open(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func cpuOf(sweep *Sweep) map[string]time.Duration {
	got := map[string]time.Duration{}
	for _, u := range sweep.Usage {
		got[u.ID] = u.CPU
	}
	return got
}

// TestRealShare uses CPU time in real control groups and compares it with the getrusage values of the processes. It
// then compares their energy on a machine that draws 100 W per busy CPU. A machine with constant power would not be
// suitable, because its dynamic energy would be found to be zero once two loads had been observed.
func TestRealShare(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			mount := hosttest.Mount(t, version)
			folder := hosttest.Folder(t, mount)
			h := openReal(t, mount, Options{})
			var sweep Sweep
			attributor := energy.NewAttributor(energy.AttributorOptions{Idle: energy.IdleApart})
			var shares energy.Attribution
			observe := func() bool {
				t.Helper()
				if err := h.Sweep(&sweep); err != nil {
					t.Fatal(err)
				}
				at := Now()
				return attributor.Observe(&energy.Observation{
					At: sweep.At, CPUs: sweep.CPUs, Busy: sweep.Busy, Usage: sweep.Usage, Ended: sweep.Ended,
					Root: []energy.Reading{{
						Domain: energy.Domain{Kind: energy.Model, Name: "test"}, At: at, Quality: energy.Estimated,
						Total: energy.Microjoules(sweep.Busy.Microseconds() * 100),
					}},
				}, &shares)
			}
			observe()
			// The groups are created while the host is running.
			ids := make([]string, 2)
			processes := make([]*hosttest.Process, 2)
			used := make([]time.Duration, 2)
			for i := range ids {
				dir := hosttest.Make(t, folder, "kubepods", "burstable", "pod"+hosttest.UID(i), hosttest.ContainerID(i))
				ids[i] = energy.ContainerID(hosttest.UID(i), hosttest.ContainerID(i))
				processes[i] = hosttest.Start(t, dir)
				used[i] = processes[i].Burn(0)
			}
			observe()
			before := cpuOf(&sweep)
			for i, p := range processes {
				used[i] = p.Burn(time.Duration(i+1)*300*time.Millisecond) - used[i]
			}
			if !observe() {
				t.Fatal("no energy was attributed")
			}
			after := cpuOf(&sweep)

			dynamic := map[string]energy.Microjoules{}
			for _, s := range shares.Shares {
				dynamic[s.ID] = s.Dynamic
			}
			for i, id := range ids {
				got := after[id] - before[id]
				if off := math.Abs(got.Seconds()/used[i].Seconds() - 1); off > 0.02 {
					t.Errorf("CPU time of %s = %v, want %v: %.1f %% off", id, got, used[i], off*100)
				} else {
					t.Logf("%v of %v: %.3f %% off", got, used[i], off*100)
				}
			}
			ratio, want := float64(dynamic[ids[1]])/float64(dynamic[ids[0]]), used[1].Seconds()/used[0].Seconds()
			if off := math.Abs(ratio/want - 1); !(off <= 0.02) {
				t.Errorf("%v and %v: energy is 1:%.3f, CPU time 1:%.3f", dynamic[ids[0]], dynamic[ids[1]], ratio, want)
			} else {
				t.Logf("%v and %v of %v: %.3f %% off", dynamic[ids[0]], dynamic[ids[1]], shares.Measured, off*100)
			}
			if got := h.Stats(); got.Blind || got.Missed > 0 {
				t.Errorf("groups were found by walks: %+v", got)
			}
		})
	}
}

// TestRealBoth covers one pod in the hierarchies of both versions, which systemd creates if both are mounted.
func TestRealBoth(t *testing.T) {
	var dirs []string
	for version := 1; version <= 2; version++ {
		folder := hosttest.Folder(t, hosttest.Mount(t, version))
		dirs = append(dirs, hosttest.Make(t, folder, "kubepods", "pod"+hosttest.UID(0), hosttest.ContainerID(0)))
	}
	root := "/sys/fs/cgroup"
	if hosttest.Mount(t, 2) == root {
		t.Skip("version 2 is mounted at the location of version 1")
	}
	h := openReal(t, root, Options{})
	p := hosttest.Start(t, dirs...)
	began := p.Burn(0)
	var sweep Sweep
	if err := h.Sweep(&sweep); err != nil {
		t.Fatal(err)
	}
	id := energy.ContainerID(hosttest.UID(0), hosttest.ContainerID(0))
	before := cpuOf(&sweep)
	used := p.Burn(100*time.Millisecond) - began
	if err := h.Sweep(&sweep); err != nil {
		t.Fatal(err)
	}
	got := time.Duration(0)
	for i, u := range sweep.Usage {
		if strings.HasPrefix(u.ID, "pod/"+hosttest.UID(0)) {
			got += u.CPU - before[u.ID]
		}
		if i > 0 && sweep.Usage[i-1].ID >= u.ID {
			t.Errorf("%q before %q", sweep.Usage[i-1].ID, u.ID)
		}
	}
	if off := math.Abs(got.Seconds()/used.Seconds() - 1); off > 0.02 || before[id] == 0 {
		t.Errorf("in both hierarchies: %v of %v", got, used)
	}
	if h.Stats().Duplicates < 1 { // this machine may run other pods
		t.Errorf("stats %+v, want the pod as a duplicate", h.Stats())
	}
}

// TestRealNotices verifies that inotify reports created and removed groups in both versions.
func TestRealNotices(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			mount := hosttest.Mount(t, version)
			folder := hosttest.Folder(t, mount)
			h := openReal(t, mount, Options{})
			var sweep Sweep
			id := energy.ContainerID(hosttest.UID(0), hosttest.ContainerID(0))
			has := func() bool {
				t.Helper()
				if err := h.Sweep(&sweep); err != nil {
					t.Fatal(err)
				}
				_, ok := cpuOf(&sweep)[id]
				return ok
			}
			if has() {
				t.Fatal("a container exists before it is created")
			}
			pods := hosttest.Make(t, folder, "kubepods", "burstable")
			walks := h.stats.Walks
			for range 3 {
				hosttest.Make(t, pods, "pod"+hosttest.UID(0), hosttest.ContainerID(0))
				if !has() {
					t.Fatal("a created container was not detected")
				}
				if err := hosttest.Remove(filepath.Join(pods, "pod"+hosttest.UID(0))); err != nil {
					t.Fatal(err)
				}
				if has() || len(sweep.Ended) != 2 {
					t.Fatalf("removed a pod with one container, %d consumers ended", len(sweep.Ended))
				}
			}
			if h.stats.Walks != walks {
				t.Errorf("%d walks", h.stats.Walks-walks)
			}
		})
	}
}

// TestRealChurn creates and removes very many groups, and verifies that descriptors and memory do not leak, and
// that no CPU time is credited twice.
func TestRealChurn(t *testing.T) {
	many := 5000
	if os.Getenv(long) != "" {
		many = 100_000
	}
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) { churn(t, version, many) })
	}
}

func churn(t *testing.T, version, many int) {
	mount := hosttest.Mount(t, version)
	folder := hosttest.Folder(t, mount)
	pods := hosttest.Make(t, folder, "kubepods", "besteffort")
	h := openReal(t, mount, Options{Max: 500})
	mine := "pod/" + hosttest.UID(0)[:8]
	known, credit, all := map[string]time.Duration{}, time.Duration(0), time.Duration(0)
	var sweep Sweep
	first := time.Duration(-1)
	tick := func() {
		t.Helper()
		if err := h.Sweep(&sweep); err != nil {
			t.Fatal(err)
		}
		next := cpuOf(&sweep)
		for _, u := range slices.Concat(sweep.Usage, sweep.Ended) {
			delta := u.CPU - known[u.ID]
			if delta < 0 {
				t.Fatalf("%s decreased by %v", u.ID, -delta)
			}
			if first >= 0 {
				all += delta
			}
			if strings.HasPrefix(u.ID, mine) {
				credit += delta
			}
		}
		known = next
		if first < 0 {
			first = sweep.Busy
		}
	}
	tick()
	others, kept, watched := h.counts(pod, container), h.Stats().Kept, len(h.watch.places) // this machine may run other pods
	worker := hosttest.Start(t)
	began := worker.Burn(0)
	made := 0
	var base, most uint64
	var open, maxOpen int
	for round := 0; made < many; round++ {
		var dirs []string
		for i := range 50 {
			dir := hosttest.Make(t, pods, "pod"+hosttest.UID(made+i), hosttest.ContainerID(made+i))
			dirs = append(dirs, filepath.Dir(dir))
			if i == 25 && round%4 == 0 {
				if round%8 == 0 {
					tick()
				}
				worker.Join(dir)
				worker.Burn(2 * time.Millisecond)
				worker.Join(mount)
			}
		}
		made += 2 * len(dirs)
		if round%3 > 0 {
			tick()
		}
		for _, dir := range dirs {
			if err := hosttest.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}
		if round%40 == 20 {
			tick()
			heap, fds := heapInUse(), descriptors(t)
			if base == 0 {
				base, open = heap, fds
			}
			most, maxOpen = max(most, heap), max(maxOpen, fds)
		}
	}
	tick()
	used := worker.Burn(0) - began
	stats := h.Stats()
	t.Logf("%d groups: heap %d to %d KiB, descriptors %d to %d, credited %v of %v; %+v",
		made, base>>10, most>>10, open, maxOpen, credit, used, stats)
	if maxOpen > open+2 || stats.Kept > kept+10 {
		t.Errorf("descriptors leak: %d, then %d; %d kept, %d before", open, maxOpen, stats.Kept, kept)
	}
	if most > base+4<<20 {
		t.Errorf("memory grows: %d KiB, then %d KiB", base>>10, most>>10)
	}
	if float64(credit) > float64(used)*1.001 {
		t.Errorf("pods were credited %v of %v", credit, used)
	}
	if float64(credit) < float64(used)/2 {
		t.Errorf("pods were credited %v only, of %v", credit, used)
	}
	if h.lift == 0 && all > sweep.Busy-first+100*time.Millisecond*time.Duration(runtime.NumCPU()) {
		t.Errorf("all consumers were credited %v, the node used %v", all, sweep.Busy-first)
	}
	if h.counts(pod, container) > others+10 || len(h.watch.places) > watched+50 {
		t.Errorf("left behind: %+v", stats)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
