// Package child starts programs that end with this one, however it ends, where the system can see to it.
package child

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a running program in a process group of its own.
type Process struct {
	Cmd  *exec.Cmd
	Done chan struct{} // closed when it has ended
	Code int           // valid after Done
}

// Start runs a command with its output appended to a file. One thread of the operating system starts it and waits for
// it: Linux kills a child with a death signal when the thread that started it ends, not when the program does.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	p := &Process{Cmd: cmd, Done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.Done)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.Code = exitCode(cmd.Wait())
		}
	}()
	return p, <-started
}

// Signal reaches the process and those that it has started. An ended one is left alone: its number may be that
// of another process.
func (p *Process) Signal(s syscall.Signal) {
	select {
	case <-p.Done:
	default:
		_ = syscall.Kill(-p.Cmd.Process.Pid, s) // it may just have ended
	}
}

// exitCode is that of a shell: 128 and the signal for a process that a signal has ended.
func exitCode(err error) int {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return 0
	case !ok:
		return 128
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() > 0 {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
