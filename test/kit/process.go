package kit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Process is a program that runs alongside the test. Its output is written to a file.
type Process struct {
	Name string
	Log  string // path; a later process of the same name appends to it
	Cmd  *exec.Cmd
	done chan struct{}
}

// Start runs a command until the test ends. If the test fails, the end of its log is logged.
func Start(t testing.TB, dir, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	_ = os.Remove(filepath.Join(dir, name+".log")) // log of an earlier test
	p, err := Launch(dir, name, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.End(t) })
	return p
}

// Launch runs a command and writes its output to NAME.log in dir. The caller must stop the process.
func Launch(dir, name string, cmd *exec.Cmd) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own descriptor
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	endWithParent(cmd)
	p := &Process{Name: name, Log: log.Name(), Cmd: cmd, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { _ = cmd.Wait(); close(p.done) }() // the exit status is in ProcessState
	return p, nil
}

// Ended reports whether the process has exited.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Done returns a channel that is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill kills the process without a graceful shutdown and waits until it has exited.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // the process may have exited already
	<-p.done
}

// Stop sends SIGTERM to the process and waits for it to exit. It returns an error if the process does not exit in
// time or its exit code is not 0.
func (p *Process) Stop(within time.Duration) error {
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("%s did not exit within %v", p.Name, within)
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s exited: %v", p.Name, p.Cmd.ProcessState)
	}
	return nil
}

// End kills the process and logs the end of its log if the test has failed.
func (p *Process) End(t testing.TB) {
	p.Kill()
	if t.Failed() {
		t.Logf("log of %s:\n%s", p.Name, p.Tail())
	}
}

// Output returns the complete output of the process.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tail returns the end of the output of the process.
func (p *Process) Tail() string {
	const tail = 12_000
	text := p.Output()
	return text[max(0, len(text)-tail):]
}
