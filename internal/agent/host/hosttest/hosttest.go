// Package hosttest creates real control groups with real processes for tests and benchmarks. It is for testing
// only. Tests are skipped if control groups cannot be created.
package hosttest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const variable = "KUBENERGY_HOSTTEST"

// Main must be called by TestMain of packages that start processes, because the test binary is also run as each
// process.
func Main(m interface{ Run() int }) int {
	if os.Getenv(variable) == "" {
		return m.Run()
	}
	obey(os.Stdin, os.Stdout)
	return 0
}

// obey executes the commands in the input lines until the end of the input.
func obey(in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var d, period time.Duration
		words := strings.Fields(lines.Text())
		for i, w := range words[1:] {
			v, err := time.ParseDuration(w)
			if err != nil {
				fmt.Fprintln(out, err)
				return
			}
			*[]*time.Duration{&d, &period}[i] = v
		}
		switch words[0] {
		case "burn":
			burn(d)
			fmt.Fprintln(out, int64(used()))
		case "wake":
			for {
				burn(d)
				time.Sleep(period)
			}
		}
	}
}

// burn computes until the process has used the given additional CPU time.
func burn(d time.Duration) {
	x := uint64(88172645463325252)
	for end := used() + d; used() < end; {
		for range 2000 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
	}
	sink.Store(x)
}

var sink atomic.Uint64

// used returns the CPU time of this process.
func used() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(unix.TimevalToNsec(r.Utime) + unix.TimevalToNsec(r.Stime))
}

// Process is a child process that executes commands, in the control groups that it has joined.
type Process struct {
	tb  testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts a process that waits for commands. The process is killed at the end of the test. Groups must be
// created before, so that they are removed afterwards.
func Start(tb testing.TB, groups ...string) *Process {
	tb.Helper()
	binary, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), variable+"=1", "GOMAXPROCS=1", "GOGC=off")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // must not outlive a killed test
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p := &Process{tb: tb, cmd: cmd, in: in, out: bufio.NewReader(out)}
	tb.Cleanup(p.Stop)
	for _, g := range groups {
		p.Join(g)
	}
	return p
}

// Join moves the process to a control group.
func (p *Process) Join(group string) {
	p.tb.Helper()
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(p.cmd.Process.Pid)),
		0); err != nil {
		p.tb.Fatal(err)
	}
}

// Burn makes the process use the given CPU time, and returns its total CPU time since it started, as reported by
// getrusage.
func (p *Process) Burn(d time.Duration) time.Duration {
	p.tb.Helper()
	if _, err := fmt.Fprintln(p.in, "burn", d); err != nil {
		p.tb.Fatal(err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.tb.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		p.tb.Fatal(err)
	}
	return time.Duration(ns)
}

// Wake makes the process repeatedly compute for d and sleep for period.
func (p *Process) Wake(d, period time.Duration) {
	p.tb.Helper()
	if _, err := fmt.Fprintln(p.in, "wake", d, period); err != nil {
		p.tb.Fatal(err)
	}
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop kills the process and waits for it.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Mount returns the mount point of the control group hierarchy that counts CPU time, for the given version of control
// groups. It skips the test if the hierarchy does not exist or groups cannot be created in it.
func Mount(tb testing.TB, version int) string {
	tb.Helper()
	mounts := []string{"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"}
	marker := "cpuacct.usage"
	if version == 2 {
		mounts = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}
		marker = "cgroup.controllers"
	}
	for _, dir := range mounts {
		if _, err := os.Stat(filepath.Join(dir, marker)); err != nil {
			continue
		}
		if unix.Access(dir, unix.W_OK) != nil || os.Geteuid() != 0 {
			tb.Skipf("cannot create control groups of version %d in %s: not root, or read-only", version, dir)
		}
		return dir
	}
	tb.Skipf("no control groups of version %d", version)
	return ""
}

var counter atomic.Int64

// Folder creates a control group for the test below the mount point, and removes it with its descendants at the end
// of the test. It first removes the groups of killed test processes, because sweeps would find them.
func Folder(tb testing.TB, mount string) string {
	tb.Helper()
	alone(tb)
	all, _ := filepath.Glob(filepath.Join(mount, "kubenergy-test-*"))
	for _, dir := range all {
		if strings.HasPrefix(filepath.Base(dir), fmt.Sprintf("kubenergy-test-%d-", os.Getpid())) {
			continue
		}
		if err := Remove(dir); err != nil { // its process has exited, or it would hold the lock
			tb.Fatal(err)
		}
	}
	dir := filepath.Join(mount, fmt.Sprintf("kubenergy-test-%d-%d", os.Getpid(), counter.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Skipf("cannot create control groups: %v", err)
	}
	tb.Cleanup(func() {
		if err := Remove(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// users counts the tests of this process that use groups.
var users struct {
	sync.Mutex
	n    int
	lock *os.File
}

// alone waits until no other process runs tests with groups, because packages are tested in parallel and all groups
// are visible below the mount point. The lock is on the parent directory of all mount points.
func alone(tb testing.TB) {
	tb.Helper()
	users.Lock()
	defer users.Unlock()
	if users.n == 0 {
		f, err := os.Open("/sys/fs/cgroup")
		if err != nil {
			tb.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			tb.Fatal(err)
		}
		users.lock = f
	}
	users.n++
	tb.Cleanup(func() {
		users.Lock()
		defer users.Unlock()
		if users.n--; users.n == 0 {
			_ = users.lock.Close()
		}
	})
}

// Make creates a group and its ancestors.
func Make(tb testing.TB, elements ...string) string {
	tb.Helper()
	dir := filepath.Join(elements...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Remove removes a group and its descendants. It retries, because killed processes may still be exiting.
func Remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for range 200 {
		if err = unix.Rmdir(dir); err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("removing control group %s: %w", dir, err)
}

// Load configures Containers.
type Load struct {
	Version    int // of the control groups
	Containers int
	PerPod     int           // containers per pod; defaults to 2
	Burst      time.Duration // CPU time per wakeup; 0 for groups without processes
	Period     time.Duration // sleep time between wakeups; defaults to 50 ms
}

// Containers creates pods with containers in the kubelet's layout, with a process in each that wakes up 20 times
// per second by default. It returns the mount point, for Options.Root of package host.
func Containers(tb testing.TB, l Load) (mount string) {
	tb.Helper()
	mount = Mount(tb, l.Version)
	if l.PerPod <= 0 {
		l.PerPod = 2
	}
	if l.Period <= 0 {
		l.Period = 50 * time.Millisecond
	}
	folder := Folder(tb, mount)
	dirs := make([]string, l.Containers)
	for i := range dirs {
		dirs[i] = Make(tb, folder, "kubepods", "burstable", "pod"+UID(i/l.PerPod), ContainerID(i))
	}
	if l.Burst <= 0 || wakePerl(tb, dirs, l) {
		return mount
	}
	for _, dir := range dirs {
		Start(tb, dir).Wake(l.Burst, l.Period)
	}
	return mount
}

// wakers is a Perl program that starts a process for each directory. Go processes take several times as long to
// wake up as they are supposed to compute, and a thousand of them overload a small machine during a measurement.
const wakers = `
my ($n, $period) = splice @ARGV, 0, 2;
my $parent = $$;
for my $dir (@ARGV) {
	my $pid = fork;
	die "fork: $!" unless defined $pid;
	next if $pid;
	open my $f, ">", "$dir/cgroup.procs" or die "$dir: $!";
	print $f $$;
	close $f or die "$dir: $!";
	my $x = 0;
	while (getppid == $parent) {
		select undef, undef, undef, $period;
		$x += $_ for 1 .. $n;
	}
	exit;
}
$| = 1;
print "ready\n";
<STDIN>;
`

// wakePerl starts wakers and returns true if Perl is installed, as it is on Debian by default.
func wakePerl(tb testing.TB, dirs []string, l Load) bool {
	tb.Helper()
	perl, err := exec.LookPath("perl")
	if err != nil {
		return false
	}
	const each = 40 * time.Nanosecond // approximate time of an addition
	cmd := exec.Command(perl, append([]string{
		"-e", wakers, strconv.Itoa(int(l.Burst / each)), strconv.FormatFloat(l.Period.Seconds(), 'f', -1, 64),
	}, dirs...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close() // the children exit within a period
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		tb.Fatal(err)
	}
	return true
}

// UID returns the UID of the test's pod i.
func UID(i int) string { return fmt.Sprintf("%08x-7e57-4000-8000-%012x", os.Getpid(), i) }

// ContainerID returns the ID of the test's container i.
func ContainerID(i int) string { return fmt.Sprintf("%032x%032x", os.Getpid(), i) }
