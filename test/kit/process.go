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

// Process is a program that runs beside the test. What it prints is kept in a file.
type Process struct {
	Name string
	Log  string // path; a second process of the same name adds to it
	Cmd  *exec.Cmd
	done chan struct{}
}

// Start runs a command until the test ends, and shows the end of its log if the test has failed.
func Start(t testing.TB, dir, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	_ = os.Remove(filepath.Join(dir, name+".log")) // of a test before
	p, err := Launch(dir, name, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.End(t) })
	return p
}

// Launch runs a command that prints into the file NAME.log of dir. The caller ends it.
func Launch(dir, name string, cmd *exec.Cmd) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	endWithParent(cmd)
	p := &Process{Name: name, Log: log.Name(), Cmd: cmd, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { _ = cmd.Wait(); close(p.done) }() // its state tells how it ended
	return p, nil
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process as a power cut would.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended
	<-p.done
}

// Stop asks the process to end and waits for it. It is an error if that takes too long or its exit code is not 0.
func (p *Process) Stop(within time.Duration) error {
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("%s did not end within %v", p.Name, within)
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s has ended: %v", p.Name, p.Cmd.ProcessState)
	}
	return nil
}

// End kills the process, and shows the end of its log if the test has failed.
func (p *Process) End(t testing.TB) {
	p.Kill()
	if t.Failed() {
		t.Logf("log of %s:\n%s", p.Name, p.Tail())
	}
}

// Output returns all that the process has printed.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tail returns the end of what the process has printed.
func (p *Process) Tail() string {
	const tail = 12_000
	text := p.Output()
	return text[max(0, len(text)-tail):]
}
