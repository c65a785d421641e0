package host

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// kernel is a fake control group tree. As in the kernel, the counter of a group includes its descendants.
type kernel struct {
	t       testing.TB
	version int
	dir     string // mount point
	proc    string
	used    map[string]time.Duration
	busy    time.Duration
	removed int
}

func newKernel(t testing.TB, version int) *kernel {
	t.Helper()
	k := &kernel{t: t, version: version, dir: filepath.Join(t.TempDir(), "cgroup"), used: map[string]time.Duration{}}
	k.proc = filepath.Join(filepath.Dir(k.dir), "proc")
	k.mkdir(k.dir)
	k.mkdir(k.proc)
	if version == 1 {
		k.write(filepath.Join(k.dir, "release_agent"), "\n")
		k.write(filepath.Join(k.dir, "cpu.shares"), "1024\n")
	} else {
		k.write(filepath.Join(k.dir, "cgroup.controllers"), "cpu memory\n")
	}
	k.count("")
	k.write(filepath.Join(k.proc, "stat"),
		"cpu  1 2 3 4 5 6 7 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 1\n")
	return k
}

func (k *kernel) mkdir(dir string) {
	k.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kernel) write(name, text string) {
	k.t.Helper()
	// Do not truncate the file first, because some file systems would then write to disk.
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		k.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		k.t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() > int64(len(text)) {
		if err := f.Truncate(int64(len(text))); err != nil {
			k.t.Fatal(err)
		}
	}
}

// count writes the counter of a group.
func (k *kernel) count(path string) {
	k.t.Helper()
	v := k.used[path]
	if path == "" {
		v = k.busy
	}
	if k.version == 1 {
		k.write(filepath.Join(k.dir, path, "cpuacct.usage"), fmt.Sprintf("%d\n", v))
		return
	}
	k.write(filepath.Join(k.dir, path, "cpu.stat"),
		fmt.Sprintf("usage_usec %d\nuser_usec %d\nsystem_usec 0\n", v.Microseconds(), v.Microseconds()))
}

// make creates groups and their ancestors.
func (k *kernel) make(paths ...string) {
	k.t.Helper()
	for _, p := range paths {
		up := ""
		for name := range strings.SplitSeq(p, "/") {
			up = filepath.Join(up, name)
			if _, ok := k.used[up]; !ok {
				k.used[up] = 0
				k.mkdir(filepath.Join(k.dir, up))
				k.count(up)
			}
		}
	}
}

// burn adds CPU time to a group and its ancestors, or only to the node if path is empty.
func (k *kernel) burn(path string, d time.Duration) {
	k.t.Helper()
	k.busy += d
	k.count("")
	for ; path != "" && path != "."; path = filepath.Dir(path) {
		if _, ok := k.used[path]; !ok {
			k.t.Fatalf("no group %q", path)
		}
		k.used[path] += d
		k.count(path)
	}
}

// remove removes a group and its descendants. It only moves the directory away, because file systems may reuse its
// inode number for the next directory, unlike control groups.
func (k *kernel) remove(path string) {
	k.t.Helper()
	k.removed++
	aside := filepath.Join(filepath.Dir(k.dir), "removed")
	k.mkdir(aside)
	if err := os.Rename(filepath.Join(k.dir, path), filepath.Join(aside, strconv.Itoa(k.removed))); err != nil {
		k.t.Fatal(err)
	}
	maps.DeleteFunc(k.used, func(p string, _ time.Duration) bool { return p == path || strings.HasPrefix(p, path+"/") })
}

// pread fails for removed groups, as in the kernel.
func (k *kernel) pread(fd int, into []byte) (int, error) {
	if name := fileOf(fd); name == "" || strings.Contains(name, "/removed/") {
		return 0, unix.ENODEV
	}
	return unix.Pread(fd, into, 0)
}

// fileOf returns the path of an open file.
func fileOf(fd int) string {
	name, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return name
}

// shares writes the requested CPU of a group.
func (k *kernel) shares(path string, v int) {
	k.t.Helper()
	name := "cpu.weight"
	if k.version == 1 {
		name = "cpu.shares"
	}
	k.write(filepath.Join(k.dir, path, name), strconv.Itoa(v)+"\n")
}

// process creates a process with a command line and a control group.
func (k *kernel) process(pid int, cmdline, group string, cpu time.Duration) {
	k.t.Helper()
	dir := filepath.Join(k.proc, strconv.Itoa(pid))
	k.mkdir(dir)
	k.write(filepath.Join(dir, "cmdline"), strings.ReplaceAll(cmdline, " ", "\x00")+"\x00")
	if k.version == 1 {
		k.write(filepath.Join(dir, "cgroup"), "4:cpu,cpuacct:"+group+"\n0::/\n")
	} else {
		k.write(filepath.Join(dir, "cgroup"), "1:name=systemd:/\n0::"+group+"\n")
	}
	k.stat(pid, cpu)
}

func (k *kernel) stat(pid int, cpu time.Duration) {
	k.t.Helper()
	k.write(filepath.Join(k.proc, strconv.Itoa(pid), "stat"),
		fmt.Sprintf("%d (qemu) (x) S 1 1 1 0 -1 0 0 0 0 0 %d 0 0 0 20 0 3 0 77 0 0\n", pid, cpu/jiffy))
}

// rig is a Host on a fake kernel with a fake clock.
type rig struct {
	*Host
	t     testing.TB
	k     *kernel
	clock time.Duration
	last  Sweep

	credit map[string]time.Duration // total time by consumer, including ended ones
	known  map[string]time.Duration // last counter of the running consumers
}

func (k *kernel) open(o Options) *rig {
	k.t.Helper()
	o.Root, o.Proc, o.Max = k.dir, k.proc, cmp.Or(o.Max, 5000)
	h, err := Open(o, slog.New(slog.DiscardHandler))
	if err != nil {
		k.t.Fatal(err)
	}
	r := &rig{
		Host: h, t: k.t, k: k, clock: time.Hour, credit: map[string]time.Duration{}, known: map[string]time.Duration{},
	}
	h.io.pread = k.pread
	h.vms.wait = time.Minute // wait for the scan, so that machines are found in the same sweep
	h.now = func() time.Duration { return r.clock }
	k.t.Cleanup(func() {
		if err := h.Close(); err != nil {
			k.t.Error(err)
		}
	})
	return r
}

// sweep advances the clock by one second, sweeps, and verifies the invariants of every sweep.
func (r *rig) sweep() Sweep {
	r.t.Helper()
	r.clock += time.Second
	if err := r.Sweep(&r.last); err != nil {
		r.t.Fatal(err)
	}
	r.book()
	return r.last
}

func (r *rig) book() {
	r.t.Helper()
	sorted := func(what string, us []energy.Usage) {
		for i := 1; i < len(us); i++ {
			if us[i-1].ID >= us[i].ID {
				r.t.Fatalf("%s is not sorted: %q before %q", what, us[i-1].ID, us[i].ID)
			}
		}
	}
	sorted("usage", r.last.Usage)
	sorted("ended", r.last.Ended)
	next := make(map[string]time.Duration, len(r.last.Usage))
	for _, u := range r.last.Usage {
		if u.CPU < r.known[u.ID] {
			r.t.Fatalf("%s decreased from %v to %v", u.ID, r.known[u.ID], u.CPU)
		}
		r.credit[u.ID] += u.CPU - r.known[u.ID]
		next[u.ID] = u.CPU
	}
	for _, u := range r.last.Ended {
		if _, ok := next[u.ID]; ok {
			r.t.Fatalf("%s ended and is still running", u.ID)
		}
		if u.CPU < r.known[u.ID] {
			r.t.Fatalf("%s decreased from %v to %v at its end", u.ID, r.known[u.ID], u.CPU)
		}
		r.credit[u.ID] += u.CPU - r.known[u.ID]
	}
	for id := range r.known {
		_, lives := next[id]
		if !lives && !slices.ContainsFunc(r.last.Ended, func(u energy.Usage) bool { return u.ID == id }) {
			r.t.Fatalf("%s disappeared without ending", id)
		}
	}
	r.known = next
}

// credited returns the total time of all consumers.
func (r *rig) credited() time.Duration {
	sum := time.Duration(0)
	for _, d := range r.credit {
		sum += d
	}
	return sum
}

// want compares the running consumers.
func (r *rig) want(want map[string]time.Duration) {
	r.t.Helper()
	got := maps.Clone(r.known)
	if !maps.Equal(got, want) {
		r.t.Fatalf("consumers:\n%s\nwant\n%s", lines(got), lines(want))
	}
}

func (r *rig) wantEnded(want map[string]time.Duration) {
	r.t.Helper()
	got := map[string]time.Duration{}
	for _, u := range r.last.Ended {
		got[u.ID] = u.CPU
	}
	if !maps.Equal(got, want) {
		r.t.Fatalf("ended:\n%s\nwant\n%s", lines(got), lines(want))
	}
}

func lines(m map[string]time.Duration) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "  %s %v\n", k, m[k])
	}
	return b.String()
}

const (
	uidA = "11111111-2222-3333-4444-555555555555"
	uidB = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
	idA  = "aaaa0000aaaa0000aaaa0000aaaa0000aaaa0000aaaa0000aaaa0000aaaa0000"
	idB  = "bbbb1111bbbb1111bbbb1111bbbb1111bbbb1111bbbb1111bbbb1111bbbb1111"
	hash = "0123456789abcdef0123456789abcdef"
)

// counts returns the number of nodes with one of the given roles.
func (h *Host) counts(roles ...role) (n int) {
	for _, one := range h.byDir {
		if slices.Contains(roles, one.role) {
			n++
		}
	}
	return n
}

func (h *Host) consumers() int { return h.counts(pod, container, vm, process, group) }
