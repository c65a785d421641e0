package guests

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// trick is an attack by a guest on its shared directory. With write access through virtiofsd, a guest acts as root
// of the host in this directory.
type trick struct {
	name string
	do   func(t *testing.T, g *stage)
	// heals is true if the guest's own counter is correct again after the next publication. Otherwise, a failure
	// must be counted.
	heals bool
	// either is true if the effect depends on the kernel, the file system or the permissions of the test.
	either bool
	// fallback is true if the trick is also tested without openat2.
	fallback bool
}

// stage is a host with three guests and a directory that must not change. One of the guests performs the trick.
type stage struct {
	dir, bad, outside string
	p                 *Publisher
	now               time.Duration
	total             int64
	names             []string
}

func (g *stage) path(name ...string) string {
	return filepath.Join(append([]string{g.bad}, name...)...)
}

func (g *stage) tick(t *testing.T) {
	t.Helper()
	g.now += time.Second
	g.total += 1000
	var vms []VMTotal
	for _, name := range g.names {
		vms = append(vms, VMTotal{Name: name, Total: microjoules(g.total)})
	}
	publish(t, g.p, g.now, vms...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// try skips the test if an operation fails that requires permissions or a specific file system.
func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Skipf("cannot be tested here: %v", err)
	}
}

var tricks = []trick{
	{name: "link in place of the counter", heals: true, fallback: true, do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(packageFolder, counterName)))
		must(t, os.Symlink(filepath.Join(g.outside, "victim"), g.path(packageFolder, counterName)))
	}},
	{name: "link to nowhere in place of the counter", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(packageFolder, counterName)))
		must(t, os.Symlink(filepath.Join(g.outside, "made"), g.path(packageFolder, counterName)))
	}},
	{name: "link in place of the folder", fallback: true, do: func(t *testing.T, g *stage) {
		must(t, os.RemoveAll(g.path(packageFolder)))
		must(t, os.Symlink(g.outside, g.path(packageFolder)))
	}},
	{name: "relative link out of the folder", fallback: true, do: func(t *testing.T, g *stage) {
		must(t, os.RemoveAll(g.path(packageFolder)))
		must(t, os.Symlink("../good/intel-rapl:0", g.path(packageFolder)))
	}},
	{name: "link to itself", do: func(t *testing.T, g *stage) {
		must(t, os.RemoveAll(g.path(packageFolder)))
		must(t, os.Symlink(packageFolder, g.path(packageFolder)))
	}},
	{name: "link through /proc", do: func(t *testing.T, g *stage) {
		must(t, os.RemoveAll(g.path(packageFolder)))
		must(t, os.Symlink(fmt.Sprintf("/proc/%d/cwd", os.Getpid()), g.path(packageFolder)))
	}},
	{name: "link in place of the domain's folder", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(domainFolder)))
		must(t, os.Symlink(g.outside, g.path(domainFolder)))
	}},
	{name: "link in place of the identity", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(identityName)))
		must(t, os.Symlink(filepath.Join(g.outside, "victim"), g.path(identityName)))
	}},
	{name: "pipe in place of the counter", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(packageFolder, counterName)))
		must(t, unix.Mkfifo(g.path(packageFolder, counterName), 0o666))
	}},
	{name: "pipe in place of the folder", fallback: true, do: func(t *testing.T, g *stage) {
		must(t, os.RemoveAll(g.path(packageFolder)))
		must(t, unix.Mkfifo(g.path(packageFolder), 0o666))
	}},
	{name: "file in place of the folder", do: func(t *testing.T, g *stage) {
		must(t, os.RemoveAll(g.path(packageFolder)))
		must(t, os.WriteFile(g.path(packageFolder), []byte("x"), 0o600))
	}},
	{name: "folder in place of the counter", do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(packageFolder, counterName)))
		must(t, os.Mkdir(g.path(packageFolder, counterName), 0o755))
	}},
	{name: "full folder in place of the counter", do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(packageFolder, counterName)))
		must(t, os.MkdirAll(g.path(packageFolder, counterName, "a", "b"), 0o755))
	}},
	{name: "folder in place of the name", do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(packageFolder, "name")))
		must(t, os.Mkdir(g.path(packageFolder, "name"), 0o755))
		g.now += renewal
	}},
	{name: "socket in place of the counter", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(packageFolder, counterName)))
		fd, err := unix.Open(g.path(packageFolder), unix.O_PATH|unix.O_CLOEXEC, 0) // avoids a long socket path
		must(t, err)
		defer func() { _ = unix.Close(fd) }()
		l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", fd, counterName))
		must(t, err)
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = l.Close() })
	}},
	{name: "device in place of the counter", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(packageFolder, counterName)))
		try(t, unix.Mknod(g.path(packageFolder, counterName), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	}},
	{name: "block device in place of the folder", do: func(t *testing.T, g *stage) {
		must(t, os.RemoveAll(g.path(packageFolder)))
		try(t, unix.Mknod(g.path(packageFolder), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 200))))
	}},
	{name: "further name of the counter", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Link(g.path(packageFolder, counterName), g.path("kept")))
		must(t, os.Chmod(g.path("kept"), 0o666))
	}},
	{name: "another file's further name in place of the counter", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Remove(g.path(packageFolder, counterName)))
		must(t, os.Link(g.path(identityName), g.path(packageFolder, counterName)))
	}},
	{name: "lies in the counter", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Chmod(g.path(packageFolder, counterName), 0o666))
		must(t, os.WriteFile(g.path(packageFolder, counterName), []byte("99999999999999999999999"), 0o666))
	}},
	{name: "growth of the counter", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Chmod(g.path(packageFolder, counterName), 0o666))
		must(t, os.Truncate(g.path(packageFolder, counterName), 1<<40))
	}},
	{name: "folder moved away", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Rename(g.path(packageFolder), g.path("elsewhere")))
	}},
	{name: "folder moved into a deeper one", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.MkdirAll(g.path("a", "b", "c"), 0o755))
		must(t, os.Rename(g.path(packageFolder), g.path("a", "b", "c", packageFolder)))
	}},
	{name: "folders exchanged", heals: true, do: func(t *testing.T, g *stage) {
		must(t, unix.Renameat2(unix.AT_FDCWD, g.path(packageFolder), unix.AT_FDCWD, g.path(domainFolder),
			unix.RENAME_EXCHANGE))
	}},
	{name: "everything removed", heals: true, do: func(t *testing.T, g *stage) {
		entries, err := os.ReadDir(g.bad)
		must(t, err)
		for _, e := range entries {
			must(t, os.RemoveAll(g.path(e.Name())))
		}
	}},
	{name: "no rights on the folder", either: true, do: func(t *testing.T, g *stage) {
		must(t, os.Chmod(g.path(packageFolder), 0))
		t.Cleanup(func() { _ = os.Chmod(g.path(packageFolder), 0o755) })
	}},
	{name: "no rights on the whole", either: true, do: func(t *testing.T, g *stage) {
		must(t, os.Chmod(g.bad, 0))
		t.Cleanup(func() { _ = os.Chmod(g.bad, 0o755) })
	}},
	{name: "everything belongs to another user", either: true, do: func(t *testing.T, g *stage) {
		must(t, filepath.WalkDir(g.bad, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			try(t, os.Lchown(path, 4242, 4242))
			return os.Chmod(path, 0o700)
		}))
	}},
	{name: "set-user-ID and sticky bits", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Chmod(g.path(packageFolder), 0o755|fs.ModeSticky|fs.ModeSetgid))
		must(t, os.Chmod(g.path(packageFolder, counterName), 0o755|fs.ModeSetuid))
	}},
	{name: "immutable counter", do: func(t *testing.T, g *stage) { attribute(t, g, "i", packageFolder, counterName) }},
	{name: "immutable folder", do: func(t *testing.T, g *stage) { attribute(t, g, "i", packageFolder) }},
	{name: "folder to append to only", do: func(t *testing.T, g *stage) { attribute(t, g, "a", packageFolder) }},
	{name: "immutable whole", either: true, do: func(t *testing.T, g *stage) { attribute(t, g, "i") }},
	{name: "mount over the folder", do: func(t *testing.T, g *stage) {
		try(t, unix.Mount(g.outside, g.path(packageFolder), "", unix.MS_BIND, ""))
		t.Cleanup(func() { unmount(t, g.dir) })
	}},
	{name: "names like those of the host", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.MkdirAll(g.path(stagingName, "good", packageFolder), 0o777))
		must(t, os.WriteFile(g.path(stagedName), []byte("1"), 0o666))
		must(t, os.Symlink("../good", g.path("good")))
	}},
	{name: "a file that is held open and written", heals: true, do: func(t *testing.T, g *stage) {
		must(t, os.Chmod(g.path(packageFolder, counterName), 0o666))
		f, err := os.OpenFile(g.path(packageFolder, counterName), os.O_RDWR, 0)
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		try(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
		_, err = f.WriteAt([]byte("7777"), 0)
		must(t, err)
	}},
	{name: "links and folders changing places all the time", either: true, fallback: true, do: race},
	{name: "folders in folders without end", heals: true, do: func(t *testing.T, g *stage) {
		dir, err := unix.Open(g.bad, unix.O_PATH|unix.O_CLOEXEC, 0)
		must(t, err)
		for range 1500 { // exceeds the maximum path length
			must(t, unix.Mkdirat(dir, "deeper", 0o700))
			next, err := unix.Openat(dir, "deeper", unix.O_PATH|unix.O_CLOEXEC, 0)
			must(t, err)
			must(t, unix.Symlinkat(g.outside, next, "link"))
			_ = unix.Close(dir)
			dir = next
		}
		_ = unix.Close(dir)
	}},
	{name: "thousands of files", heals: true, do: func(t *testing.T, g *stage) {
		for i := range 3000 {
			must(t, os.Link(g.path(identityName), g.path(fmt.Sprint("file", i))))
		}
	}},
}

// race exchanges the directory with a link to the outside while the test publishes.
func race(t *testing.T, g *stage) {
	must(t, os.Symlink(g.outside, g.path("link")))
	stop, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, g.path("link"), unix.AT_FDCWD, g.path(packageFolder),
					unix.RENAME_EXCHANGE)
			}
		}
	})
	end := time.Now().Add(200 * time.Millisecond)
	for time.Now().Before(end) {
		g.tick(t)
		runtime.Gosched()
	}
	close(stop)
	done.Wait()
}

// unmount removes all mounts below a directory.
func unmount(t *testing.T, dir string) {
	text, err := os.ReadFile("/proc/self/mounts")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, dir) {
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	}
}

func attribute(t *testing.T, g *stage, flag string, name ...string) {
	t.Helper()
	if os.Getenv(unprivileged) != "" {
		t.Skip("requires a capability")
	}
	out, err := exec.CommandContext(t.Context(), "chattr", "+"+flag, g.path(name...)).CombinedOutput()
	if err != nil {
		t.Skipf("cannot be tested here: %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("chattr", "-R", "-f", "-i", "-a", g.dir).CombinedOutput(); err != nil {
			t.Logf("chattr: %v %s", err, out)
		}
	})
}

func (k *trick) run(t *testing.T) {
	// Use an in-memory file system as in production if permitted, otherwise the disk.
	root := memory(t)
	if os.Getenv(unprivileged) != "" {
		root = t.TempDir()
	}
	g := &stage{
		dir: filepath.Join(root, "guests"), outside: filepath.Join(root, "outside"),
		names: []string{"good", "bad", "other good"},
	}
	g.bad = filepath.Join(g.dir, "bad")
	must(t, os.MkdirAll(filepath.Join(g.outside, "folder"), 0o755))
	for _, name := range []string{"victim", counterName, "name", "folder/file"} {
		must(t, os.WriteFile(filepath.Join(g.outside, name), []byte("not yours"), 0o600))
	}
	g.p = open(t, g.dir, "h")
	g.p.grace = 5 * time.Second
	g.tick(t)
	before, others := list(t, g.outside), rest(t, g)
	k.do(t, g)
	failed := g.p.Stats().Failed
	for range 3 {
		g.tick(t)
	}
	k.check(t, g, failed)
	if diff := cmp.Diff(others, rest(t, g)); diff != "" {
		t.Errorf("files of other guests changed:\n%s", diff)
	}
	// When the machine stops, its files must be removed or set aside, and no other files may change.
	g.names = []string{"good", "other good"}
	g.now += renewal
	for range 8 {
		g.tick(t)
	}
	for i := 0; g.p.litter && i < 100; i++ {
		g.tick(t)
	}
	if _, err := os.Lstat(g.bad); k.heals && (err == nil || len(leftovers(t, g.dir)) > 0) {
		t.Errorf("files of the stopped guest were not removed: %v", leftovers(t, g.dir))
	}
	k.checkGood(t, g)
	if diff := cmp.Diff(before, list(t, g.outside)); diff != "" {
		t.Errorf("the outside directory changed:\n%s", diff)
	}
}

func (k *trick) check(t *testing.T, g *stage, failedBefore uint64) {
	t.Helper()
	k.checkGood(t, g)
	text, err := os.ReadFile(g.path(packageFolder, counterName))
	right := err == nil && string(text) == strconv.FormatInt(g.total, 10)
	failed := g.p.Stats().Failed - failedBefore
	switch {
	case k.either:
		if !right && failed == 0 {
			t.Errorf("counter = %q (%v), want a failure", text, err)
		}
	case k.heals && (!right || failed > 0):
		t.Errorf("counter = %q (%v), want %d, %d failures", text, err, g.total, failed)
	case !k.heals && failed == 0:
		t.Errorf("no failure was counted, counter = %q (%v)", text, err)
	}
}

func (k *trick) checkGood(t *testing.T, g *stage) {
	t.Helper()
	for _, name := range []string{"good", "other good"} {
		folder, _ := Folder(name)
		if got := counter(t, g.dir, folder); got != microjoules(g.total) {
			t.Errorf("counter of %s = %d, want %d", name, int64(got), g.total)
		}
	}
}

// rest returns the files of the other guests without their counters.
func rest(t *testing.T, g *stage) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range []string{"good", "other good"} {
		folder, _ := Folder(name)
		for path, what := range list(t, filepath.Join(g.dir, folder)) {
			if !strings.HasSuffix(path, counterName) {
				found[filepath.Join(folder, path)] = what
			}
		}
	}
	return found
}

func TestTricks(t *testing.T) {
	if len(tricks) < 20 {
		t.Errorf("%d tricks", len(tricks))
	}
	for _, trick := range tricks {
		t.Run(trick.name, func(t *testing.T) { trick.run(t) })
	}
}

const unprivileged = "KUBENERGY_TEST_UNPRIVILEGED"

// TestTricksWithoutCapabilities runs TestTricks like the agent, as root without capabilities.
func TestTricksWithoutCapabilities(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv(unprivileged) != "" {
		t.Skip("requires root to drop capabilities")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("requires setpriv of util-linux")
	}
	cmd := exec.CommandContext(t.Context(), setpriv, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs",
		os.Args[0], "-test.run=^(TestTricks|TestTree|TestGrace|TestReadersOfPowercap)$", "-test.v")
	cmd.Env = append(os.Environ(), unprivileged+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if passed := strings.Count(string(out), "--- PASS: TestTricks/"); passed < 20 {
		t.Errorf("only %d tricks ran:\n%s", passed, out)
	}
}

// TestFullFileSystem verifies that a guest that fills the file system with data or inodes does not affect the
// counters of other guests.
func TestFullFileSystem(t *testing.T) {
	for name, options := range map[string]string{"bytes": "size=256k", "names": "size=64m,nr_inodes=200"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			try(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options+",mode=0700"))
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			g := &stage{dir: dir, bad: filepath.Join(dir, "bad"), names: []string{"good", "bad", "other good"}}
			g.p = open(t, dir, "h")
			g.tick(t)
			fill(t, g.bad)
			for range 20 {
				g.tick(t)
				fill(t, g.bad) // also use space that was freed
				new(trick).checkGood(t, g)
			}
			// New machines get no counter until space is available again.
			g.names = append(g.names, "late")
			g.tick(t)
			if g.p.Stats().Failed == 0 {
				t.Error("published a new machine on a full file system")
			}
			entries, err := os.ReadDir(g.bad)
			must(t, err)
			for _, e := range entries {
				must(t, os.RemoveAll(g.path(e.Name())))
			}
			failed := g.p.Stats().Failed
			g.tick(t)
			new(trick).checkGood(t, g)
			if late, bad := counter(t, dir, "late"), counter(t, dir, "bad"); g.p.Stats().Failed > failed ||
				late != bad || int64(bad) != g.total {
				t.Errorf("%d and %d, %+v", int64(late), int64(bad), g.p.Stats())
			}
		})
	}
}

func fill(t *testing.T, dir string) {
	t.Helper()
	for i := 0; ; i++ {
		f, err := os.CreateTemp(dir, "fill")
		if err != nil {
			return
		}
		_, err = f.Write(make([]byte, 64<<10))
		_ = f.Close()
		if err != nil && i > 0 {
			return
		}
	}
}
