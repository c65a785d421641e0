package experiment

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/kubenergy/kubenergy/internal/child"
)

// process is a child process of an experiment. A nil process is a no-op.
type process struct {
	*child.Process
	log string // file with its output
}

// start starts a program with the given kubeconfig.
func start(log, kubeconfig string, args ...string) (*process, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p, err := child.Start(cmd, log)
	if err != nil {
		return nil, err
	}
	return &process{p, log}, nil
}

// stop terminates the process, and kills it after a minute.
func (p *process) stop() {
	if p == nil {
		return
	}
	p.Signal(syscall.SIGTERM)
	defer time.AfterFunc(time.Minute, func() { p.Signal(syscall.SIGKILL) }).Stop()
	<-p.Done
}

// lives returns an error if the process has exited.
func (p *process) lives() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.Done:
		text, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s exited: %s", filepath.Base(p.Cmd.Path), text[max(0, len(text)-2000):])
	default:
		return nil
	}
}

// cpu returns the CPU time of the process in seconds, or 0 if it has exited.
func (p *process) cpu() float64 {
	if p == nil {
		return 0
	}
	own, err := procfs.NewProc(p.Cmd.Process.Pid)
	if err != nil {
		return 0
	}
	s, _ := own.Stat() // the process may have exited
	return s.CPUTime()
}

// program returns the path of a program in the directory of this program.
func program(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing: want it in the directory of kubenergy, where make build writes it", path)
	}
	return path, nil
}

// Limits of valid figures: the fraction of the machine's CPU time that other programs may use, and the mean time in
// seconds by which simulated Jobs may exceed their run time. On an idle machine, that time is below one second.
const (
	MaxOthers  = 0.15
	MaxOverrun = 3
)
