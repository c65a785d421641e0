package experiment

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/kubenergy/kubenergy/kube/child"
)

// process is a program that works for an experiment; nil: there is none.
type process struct {
	*child.Process
	log string // file with what it prints
}

// start runs a program for a cluster.
func start(log, kubeconfig string, args ...string) (*process, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p, err := child.Start(cmd, log)
	if err != nil {
		return nil, err
	}
	return &process{p, log}, nil
}

// stop ends it, by force where it does not end within a minute.
func (p *process) stop() {
	if p == nil {
		return
	}
	p.Signal(syscall.SIGTERM)
	defer time.AfterFunc(time.Minute, func() { p.Signal(syscall.SIGKILL) }).Stop()
	<-p.Done
}

// lives returns an error where it has ended.
func (p *process) lives() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.Done:
		text, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s has ended: %s", filepath.Base(p.Cmd.Path), text[max(0, len(text)-2000):])
	default:
		return nil
	}
}

// cpu returns the seconds of CPU time that it has used; 0 where it has ended.
func (p *process) cpu() float64 {
	if p == nil {
		return 0
	}
	own, err := procfs.NewProc(p.Cmd.Process.Pid)
	if err != nil {
		return 0
	}
	s, _ := own.Stat() // it may just have ended
	return s.CPUTime()
}

// program is the path of one that stands beside this one.
func program(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: make build makes it", err)
	}
	return path, nil
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
