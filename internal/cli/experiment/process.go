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
		return "", fmt.Errorf("%s is missing: it must stand beside kubenergy, where make build puts it", path)
	}
	return path, nil
}

// MaxOthers is the share of the machine's processors from which on it is too busy for a judgement.
const MaxOthers = 0.15
