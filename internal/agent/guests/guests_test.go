package guests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func open(t testing.TB, dir, host string) *Publisher {
	t.Helper()
	p, err := Open(dir, host, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// VMTotal is the total energy of a virtual machine.
type VMTotal struct {
	Name    string
	Total   energy.Microjoules
	Quality energy.Quality
}

// publish raises the counters of the machines to their totals, and publishes them.
func publish(t testing.TB, p *Publisher, now time.Duration, vms ...VMTotal) {
	t.Helper()
	names := make([]string, 0, len(vms))
	for _, vm := range vms {
		if tree, err := p.tree(vm.Name); err == nil {
			p.Add(vm.Name, vm.Total-tree.total, vm.Quality)
		}
		names = append(names, vm.Name)
	}
	if err := p.Publish(now, names); err != nil {
		t.Fatal(err)
	}
}

func counter(t testing.TB, dir, folder string) energy.Microjoules {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, folder, packageFolder, counterName))
	if err != nil {
		t.Fatal(err)
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", folder, err)
	}
	return energy.Microjoules(v)
}

// list returns the mode and content of all files below a directory, by path.
func list(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(content)
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			text += " " + to
		}
		found[rel] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTree(t *testing.T) {
	old := syscall.Umask(0o077) // as of a hardened service
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "guests")
	p := open(t, dir, "hv-1")
	publish(t, p, time.Second, VMTotal{Name: "web", Total: 1234567, Quality: energy.Derived})
	want := map[string]string{
		".":                                "drwxr-xr-x",
		"intel-rapl:0":                     "drwxr-xr-x",
		"intel-rapl:0/energy_uj":           "-r--r--r-- 1234567",
		"intel-rapl:0/max_energy_range_uj": "-r--r--r-- 9223372036854775807",
		"intel-rapl:0/name":                "-r--r--r-- package-0\n",
		"intel-rapl:0:0":                   "drwxr-xr-x",
		"kubenergy.json": `-r--r--r-- {"version":1,"host":"hv-1","vm":"web","quality":"derived"}` +
			"\n",
	}
	if diff := cmp.Diff(want, list(t, filepath.Join(dir, "web"))); diff != "" {
		t.Error(diff)
	}
	for _, closed := range []string{dir, filepath.Join(dir, stagingName)} {
		if info, err := os.Stat(closed); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v, error %v: want no access for others", closed, info.Mode(), err)
		}
	}
	publish(t, p, 2*time.Second, VMTotal{Name: "web", Total: 1234568, Quality: energy.Estimated})
	if got := counter(t, dir, "web"); got != 1234568 {
		t.Errorf("counter = %d", int64(got))
	}
	var id identity
	text, err := os.ReadFile(filepath.Join(dir, "web", identityName))
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	if err != nil || id.Quality != energy.Estimated {
		t.Errorf("after a change of quality: %s, error %v", text, err)
	}
	if got := p.Stats(); got.Failed != 0 || got.Trees != 1 {
		t.Errorf("%+v", got)
	}
}

// TestReadersOfPowercap verifies that readers of other projects find the counter by their own rules.
func TestReadersOfPowercap(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, "h")
	publish(t, p, time.Second, VMTotal{Name: "web", Total: 42})
	base := filepath.Join(dir, "web")
	entries, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	// Scaphandre searches for a directory with two numbers, and reads the counter of the directory with the first
	// number. It reads a domain only if it has a name.
	domain, found := regexp.MustCompile(`^intel-rapl:(\d+):\d+$`), 0
	for _, e := range entries {
		m := domain.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if text, err := os.ReadFile(filepath.Join(base, "intel-rapl:"+m[1], "energy_uj")); err != nil ||
			string(text) != "42" {
			t.Errorf("Scaphandre reads %q, error %v", text, err)
		}
		if _, err := os.Stat(filepath.Join(base, e.Name(), "name")); err == nil {
			t.Error("Scaphandre would read the energy of a domain")
		}
		found++
	}
	if found != 1 {
		t.Errorf("Scaphandre finds %d sockets", found)
	}
	// Prometheus and Kepler skip directories without a name. If there is a name, all files must exist.
	found = 0
	for _, e := range entries {
		read := func(file string) (string, error) {
			text, err := os.ReadFile(filepath.Join(base, e.Name(), file))
			return strings.TrimSpace(string(text)), err
		}
		name, err := read("name")
		if err != nil {
			continue
		}
		found++
		most, err := read("max_energy_range_uj")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := strconv.ParseUint(most, 10, 64); err != nil || name != "package-0" {
			t.Errorf("zone %q with the range %q", name, most)
		}
	}
	if found != 1 {
		t.Errorf("others find %d zones", found)
	}
}

// TestCountersNeverFall verifies that a counter never decreases and counts all energy of its machine, regardless of
// restarts.
func TestCountersNeverFall(t *testing.T) {
	parent, runs := memory(t), 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		dir, err := filepath.Join(parent, strconv.Itoa(runs)), error(nil)
		counters := map[string]energy.Microjoules{}
		var p *Publisher
		var now time.Duration
		restart := func() {
			if p != nil {
				p.Close() // does not save, like a killed process
			}
			if p, err = Open(dir, "h", slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
		}
		restart()
		defer func() { p.Close() }()
		for range rapid.IntRange(1, 25).Draw(r, "ticks") {
			now += time.Second
			var vms []string
			for _, name := range []string{"a", "b c", "d"} {
				if rapid.IntRange(0, 9).Draw(r, "fate of "+name) == 0 {
					continue // not running
				}
				used := energy.Microjoules(rapid.Int64Range(0, 1e9).Draw(r, "joules"))
				counters[name] += used
				p.Add(name, used, energy.Derived)
				vms = append(vms, name)
			}
			if err := p.Publish(now, vms); err != nil {
				r.Fatal(err)
			}
			for _, name := range vms {
				folder, _ := Folder(name)
				if got := counter(t, dir, folder); got != counters[name] {
					r.Fatalf("counter of %q = %d, want %d", name, got, counters[name])
				}
			}
			if rapid.IntRange(0, 4).Draw(r, "kill") == 0 {
				restart()
			}
		}
	})
}

// TestLedgerSurvivesTornPages verifies that a partially written page is harmless, because the other one is at most
// one publication old, and was written before it.
func TestLedgerSurvivesTornPages(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, "h")
	for i := range 9 {
		publish(t, p, time.Duration(i+1)*time.Second, VMTotal{Name: "a", Total: energy.Microjoules(100 * (i + 1))})
	}
	p.Close()
	for _, name := range slotNames {
		path := filepath.Join(dir, stagingName, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		saved, err := parseLedger(whole)
		if err != nil || len(saved.Totals) != 1 {
			t.Fatalf("%s: %v, error %v", name, saved, err)
		}
		used := len(bytes.TrimRight(whole, "\x00"))
		for cut := range used {
			torn := append([]byte(nil), whole...)
			copy(torn[cut:used], strings.Repeat("x", used))
			if got, err := parseLedger(torn); err == nil {
				t.Fatalf("truncated at %d: %v", cut, got)
			}
		}
		if err := os.WriteFile(path, whole[:len(whole)/64], 0o600); err != nil {
			t.Fatal(err)
		}
		p := open(t, dir, "h")
		publish(t, p, time.Minute, VMTotal{Name: "a", Total: 950})
		if got := counter(t, dir, "a"); got < 900 {
			t.Errorf("with %s truncated, the counter decreased to %d", name, int64(got))
		}
		p.Close()
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCounterEndsAtItsRange(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, "h")
	p.Add("a", math.MaxInt64-3, energy.Derived)
	p.Add("a", 5, energy.Derived)
	if err := p.Publish(1, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if got := counter(t, dir, "a"); got != math.MaxInt64 {
		t.Errorf("counter = %d", int64(got))
	}
}

func TestFolder(t *testing.T) {
	for name, want := range map[string]string{
		"web":                    "web",
		"instance-00000a1f":      "instance-00000a1f",
		"A_b.c+d@e=f-9":          "A_b.c+d@e=f-9",
		strings.Repeat("x", 128): strings.Repeat("x", 128),
		"my vm":                  "my_vm~",
		".hidden":                "_hidden~",
		".staging":               "_staging~",
		"-rf":                    "_rf~",
		"wéb":                    "w_b~",
		"a~b":                    "a_b~",
		"a:b":                    "a_b~",
		"..x":                    "_.x~",
		strings.Repeat("x", 129): strings.Repeat("x", 64) + "~",
	} {
		got, err := Folder(name)
		if err != nil || !strings.HasPrefix(got, want) || !strings.HasSuffix(want, "~") && got != want ||
			len(got) > maxFolder {
			t.Errorf("%q: %q, error %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{
		"", ".", "..", "a/b", "../../etc", "/", "a\x00b", "a\nb", "\x7f", "a\u0085b", "\xff\xfe",
		strings.Repeat("x", 254),
	} {
		if got, err := Folder(name); err == nil {
			t.Errorf("Folder(%q) = %q", name, got)
		}
	}
	a, _ := Folder("my vm")
	for _, other := range []string{"my\u00a0vm", "my:vm", "my_vm", a} {
		if b, _ := Folder(other); a == b {
			t.Errorf("%q and %q share the directory %q", "my vm", other, b)
		}
	}
}

func FuzzFolder(f *testing.F) {
	for _, name := range []string{"web", "a/b", "..", "my vm", "x~0123456789abcdef", "\xff", strings.Repeat("é", 100)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		defer memtest.Limit(t, 100*len(name))()
		folder, err := Folder(name)
		if err != nil {
			return
		}
		if folder == "" || len(folder) > maxFolder || folder[0] == '.' || folder[0] == '-' ||
			strings.ContainsAny(folder, "/\x00") || filepath.Base(folder) != folder {
			t.Errorf("Folder(%q) = %q", name, folder)
		}
		if strings.Contains(folder, "~") == (folder == name) {
			t.Errorf("Folder(%q) = %q, which may collide with other names", name, folder)
		}
	})
}

func TestLedger(t *testing.T) {
	dir, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	var l ledger
	if _, err := l.open(dir); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.save(map[string]*tree{"": {name: "web \"é\n", total: 123}}); err != nil {
		t.Error(err)
	}
	saved, err := parseLedger(append(l.page, "rest of an older page\n"...))
	if want := map[string]energy.Microjoules{"web \"é\n": 123}; err != nil || saved.Sequence != 1 ||
		!maps.Equal(saved.Totals, want) {
		t.Errorf("parseLedger() = %v, %v, want %v", saved, err, want)
	}
	other := bytes.Replace(l.page, []byte("guests 1"), []byte("guests 2"), 1)
	if saved, err := parseLedger(other); err == nil {
		t.Errorf("parseLedger() of an unknown version = %v, want an error", saved)
	}
}

// TestLedgerKeepsItsWholeSlot verifies that a failed save retries the same slot, so that the other one remains
// intact.
func TestLedgerKeepsItsWholeSlot(t *testing.T) {
	folder := t.TempDir()
	dir, err := unix.Open(folder, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	var l ledger
	if _, err := l.open(dir); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	saved := map[string]*tree{"": {name: "web", total: 1}}
	for range 2 {
		if err := l.save(saved); err != nil {
			t.Fatal(err)
		}
	}
	torn := (l.sequence + 1) % 2
	fd := l.slots[torn].fd
	l.slots[torn].fd = dir // not writable
	for range 3 {
		if err := l.save(map[string]*tree{"": {name: "web", total: 2}}); err == nil {
			t.Error("wrote the intact slot while the other one may be truncated")
		}
	}
	l.slots[torn].fd = fd
	if err := writeAt(fd, []byte("torn"), 0); err != nil {
		t.Fatal(err)
	}
	var next ledger
	totals, err := next.open(dir)
	defer next.close()
	if err != nil || !maps.Equal(totals, map[string]energy.Microjoules{"web": 1}) {
		t.Errorf("the next process reads %v, %v", totals, err)
	}
}

func FuzzLedger(f *testing.F) {
	page := func(body string) []byte {
		return fmt.Appendf(nil, pageFormat, crc32.ChecksumIEEE([]byte(body)), body)
	}
	f.Add([]byte{})
	f.Add(append(page(`{"sequence":7,"totals":{"a":9223372036854775807}}`), "\n\n"...))
	f.Add(page(`{"sequence":18446744073709551615,"totals":{"a":-1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 200*len(text))()
		for _, text := range [][]byte{text, page(string(text))} {
			saved, err := parseLedger(text)
			for name, total := range saved.Totals {
				if err != nil || total < 0 {
					t.Errorf("%q: %d, error %v", name, int64(total), err)
				}
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, "h")
	publish(t, p, 1,
		VMTotal{Name: "../outside", Total: 1}, VMTotal{Name: "a", Total: 2}, VMTotal{Name: "", Total: 4},
		VMTotal{Name: "b", Total: 5})
	if got := p.Stats(); got.Refused != 2 || got.Trees != 2 {
		t.Errorf("%+v", got)
	}
	if a, b := counter(t, dir, "a"), counter(t, dir, "b"); a != 2 || b != 5 {
		t.Errorf("a %d, b %d", int64(a), int64(b))
	}
	if _, err := Open(dir, "h", slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "another process") {
		t.Errorf("opened a directory in use: error %v", err)
	}
	open777 := t.TempDir()
	if err := os.Chmod(open777, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(open777, "h", slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "others may write") {
		t.Errorf("opened a directory that others may write to: error %v", err)
	}
	linked := t.TempDir()
	if err := os.Symlink(t.TempDir(), filepath.Join(linked, stagingName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(linked, "h", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("accepted a link as the staging directory")
	}
}

func TestGrace(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, "h")
	p.grace = 10 * time.Second
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	publish(t, p, second(1), VMTotal{Name: "a", Total: 1}, VMTotal{Name: "b", Total: 7})
	for n := 2; n <= 11; n++ {
		publish(t, p, second(n), VMTotal{Name: "b", Total: 7})
		if got := counter(t, dir, "a"); got != 1 {
			t.Fatalf("after %d s: %d", n, int64(got))
		}
	}
	// If the machine is running again, the grace period starts again.
	publish(t, p, second(11), VMTotal{Name: "a", Total: 5}, VMTotal{Name: "b", Total: 7})
	publish(t, p, second(12), VMTotal{Name: "b", Total: 7})
	publish(t, p, second(21), VMTotal{Name: "b", Total: 7})
	if got := counter(t, dir, "a"); got != 5 {
		t.Fatalf("%d", int64(got))
	}
	publish(t, p, second(22), VMTotal{Name: "b", Total: 7})
	if _, err := os.Lstat(filepath.Join(dir, "a")); err == nil {
		t.Error("the directory exists after the grace period")
	}
	for range 20 {
		publish(t, p, second(23), VMTotal{Name: "b", Total: 7})
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("the staging directory contains %v", left)
	}
	// A new machine with the same name starts with a new counter.
	publish(t, p, second(24), VMTotal{Name: "a", Total: 2}, VMTotal{Name: "b", Total: 7})
	if got := counter(t, dir, "a"); got != 2 {
		t.Errorf("%d", int64(got))
	}
	// A process that has never seen b removes its directory, because the ledger contains it.
	p.Close()
	p = open(t, dir, "h")
	p.grace = 10 * time.Second
	publish(t, p, second(30), VMTotal{Name: "a", Total: 2})
	publish(t, p, second(41), VMTotal{Name: "a", Total: 2})
	if _, err := os.Lstat(filepath.Join(dir, "b")); err == nil {
		t.Error("the directory of a machine that stopped without an agent was not removed")
	}
	// A directory that an administrator created for a machine that never ran is not removed.
	if err := os.Mkdir(filepath.Join(dir, "prepared"), 0o755); err != nil {
		t.Fatal(err)
	}
	publish(t, p, second(99), VMTotal{Name: "a", Total: 2})
	if _, err := os.Lstat(filepath.Join(dir, "prepared")); err != nil {
		t.Error(err)
	}
}

// leftovers returns unexpected entries in the staging directory.
func leftovers(t testing.TB, dir string) (left []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, stagingName))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), emptyPrefix) || strings.HasPrefix(e.Name(), stuckPrefix) {
			left = append(left, e.Name())
		}
	}
	return left
}

// TestEnterWithoutOpenat2 verifies the properties of enter without openat2.
func TestEnterWithoutOpenat2(t *testing.T) {
	noOpenat2.Store(true)
	defer noOpenat2.Store(false)
	dir := t.TempDir()
	for _, trick := range tricks {
		if trick.fallback {
			t.Run(trick.name, func(t *testing.T) { trick.run(t) })
		}
	}
	p := open(t, dir, "h")
	publish(t, p, 1, VMTotal{Name: "a", Total: 2})
	if got := counter(t, dir, "a"); got != 2 {
		t.Errorf("%d", int64(got))
	}
}

// TestDescriptors verifies that no descriptors leak while virtual machines start and stop.
func TestDescriptors(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	dir := memory(t)
	before := count()
	p := open(t, dir, "h")
	p.grace = time.Second
	publish(t, p, time.Second, VMTotal{Name: "stays", Total: 1})
	with := count()
	for i := range 500 {
		publish(t, p, time.Duration(i+2)*time.Second, VMTotal{Name: "stays", Total: 1},
			VMTotal{Name: "vm-" + strconv.Itoa(i), Total: 1})
	}
	for i := range 5 {
		publish(t, p, time.Duration(i+600)*time.Second, VMTotal{Name: "stays", Total: 1})
	}
	if got := count(); got != with || len(p.trees) != 1 {
		t.Errorf("%d descriptors instead of %d, %d trees, %+v", got, with, len(p.trees), p.Stats())
	}
	p.Close()
	if got := count(); got != before {
		t.Errorf("%d descriptors instead of %d", got, before)
	}
}
