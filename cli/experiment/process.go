package experiment

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// process is a program in a process group of its own, which ends with us.
type process struct {
	cmd  *exec.Cmd
	log  string // file with what it prints
	stop func()
	done chan struct{}
}

// start runs a program. One thread of the operating system starts it and waits for it: Linux kills a child with a death
// signal when the thread that started it ends.
func start(log, env string, args ...string) (*process, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the child has its own
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{cmd: exec.CommandContext(ctx, args[0], args[1:]...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = output, output, append(os.Environ(), env)
	p.cmd.SysProcAttr, p.cmd.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, time.Minute
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) }
	p.stop = func() { cancel(); <-p.done }
	dieWithParent(p.cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // its log says why it has ended
		}
	}()
	if err = <-started; err != nil {
		cancel()
	}
	return p, err
}

// lives returns an error where the process has ended.
func (p *process) lives() error {
	select {
	case <-p.done:
		text, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s has ended: %s", filepath.Base(p.cmd.Path), text[max(0, len(text)-2000):])
	default:
		return nil
	}
}

// program finds a program beside this one, else on the PATH.
func program(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this program nor on the PATH: make build makes it", name)
	}
	return filepath.Abs(path)
}

// usage is what the machine's processors have done, in seconds: all of it, and for this process and its descendants.
type usage struct{ busy, ours float64 }

// readUsage returns zeros where that cannot be known.
func readUsage() (u usage) {
	machine, err := procfs.NewDefaultFS()
	if err != nil {
		return u
	}
	if s, err := machine.Stat(); err == nil {
		c := s.CPUTotal
		u.busy = c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	}
	processes, _ := machine.AllProcs()
	all := map[int]procfs.ProcStat{}
	for _, p := range processes {
		if s, err := p.Stat(); err == nil {
			all[s.PID] = s
		}
	}
	const ticks = 100 // a second, as Linux tells CPU time on all architectures
	for pid, s := range all {
		for up := pid; up > 1; up = all[up].PPID {
			if up == os.Getpid() {
				u.ours += float64(int(s.UTime+s.STime)+s.CUTime+s.CSTime) / ticks
				break
			}
		}
	}
	return u
}

// others returns the share of the machine's processors that other programs have used since.
func (u usage) others(length time.Duration) float64 {
	now := readUsage()
	return max(0, now.busy-u.busy-(now.ours-u.ours)) / length.Seconds() / float64(runtime.NumCPU())
}

// MostOthers is the share of the machine's processors from which on it is too busy for a judgement.
const MostOthers = 0.15

// Busy measures for so long which share of the machine's processors other programs use.
func Busy(length time.Duration) float64 {
	before := readUsage()
	time.Sleep(length)
	return before.others(length)
}

// Free returns how many bytes there is room for in a folder, or above it where there is none yet.
func Free(dir string) uint64 {
	var s syscall.Statfs_t
	for syscall.Statfs(dir, &s) != nil && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}
	return s.Bavail * uint64(s.Bsize) //nolint:gosec // a size is positive
}
