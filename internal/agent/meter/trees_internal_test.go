package meter

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// plant creates the files listed in a .tree file, one per line: path, space, content. A path ending in a slash is a
// directory, and one ending in a bar is a file without a newline. Zones have colons in their names, which are not
// allowed in Go modules.
func plant(t testing.TB, tree string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", tree))
	if err != nil {
		t.Fatal(err)
	}
	root := fast(t)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		path, content, _ := strings.Cut(line, " ")
		if strings.HasSuffix(path, "/") {
			folder(t, filepath.Join(root, path))
			continue
		}
		path, bare := strings.CutSuffix(path, "|")
		if !bare {
			content += "\n"
		}
		put(t, filepath.Join(root, path), content)
	}
	return root
}

// fast returns a directory on an in-memory file system, if available, because rewriting files thousands of times is
// slow on some disks.
func fast(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "meter-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func folder(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// put overwrites a file in place, as in sysfs.
func put(t testing.TB, path, content string) {
	t.Helper()
	folder(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// config returns a configuration with only a clock.
func (c *clock) config() Config {
	o := DefaultConfig()
	o.PowercapRoot, o.HwmonRoot, o.GuestDir, o.Now = "/nowhere", "/nowhere", "/nowhere", c.Now
	o.GPURoot = ""
	return o
}

// clock is a fake clock of a node.
type clock struct{ now time.Duration }

func newClock() *clock { return &clock{now: 1000 * time.Second} }

func (c *clock) Now() time.Duration { return c.now }

func (c *clock) tick() Tick { return Tick{Now: c.Now} }

// after advances the clock and returns a tick.
func (c *clock) after(d time.Duration) Tick {
	c.now += d
	return c.tick()
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// read reads a meter and fails the test on an error.
func read(t testing.TB, m Meter, at Tick) map[string]energy.Reading {
	t.Helper()
	readings, err := m.Read(at, nil)
	if err != nil {
		t.Fatal(err)
	}
	return byName(t, readings)
}

func byName(t testing.TB, readings []energy.Reading) map[string]energy.Reading {
	t.Helper()
	found := map[string]energy.Reading{}
	for _, r := range readings {
		if _, twice := found[r.Domain.Name]; twice {
			t.Fatalf("duplicate reading of %s", r.Domain.Name)
		}
		found[r.Domain.Name] = r
	}
	return found
}

// used returns the energy between two readings, which must belong to the same run.
func used(t testing.TB, a, b energy.Reading) energy.Microjoules {
	t.Helper()
	if a.Run != b.Run {
		t.Fatalf("run of %s changed from %d to %d", a.Domain.Name, a.Run, b.Run)
	}
	return b.Total - a.Total
}

func names(domains []energy.Domain) string {
	var all []string
	for _, d := range domains {
		all = append(all, d.Name)
	}
	return strings.Join(all, " ")
}

func mustFail(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that contains %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not contain %q", err, part)
		}
	}
}

// failing returns real calls that fail for paths that contain a key of faults.
func failing(faults map[string]error) *calls {
	c := realCalls
	c.open = func(path string) (int, error) {
		for part, err := range faults {
			if strings.Contains(path, part) {
				return -1, err
			}
		}
		return realCalls.open(path)
	}
	return &c
}

// descriptors returns the number of open files of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("requires /proc")
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
