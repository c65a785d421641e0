// Package child starts child processes that exit when this process exits, even if it is killed, on systems that
// support it.
package child

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a running program in its own process group.
type Process struct {
	Cmd  *exec.Cmd
	Done chan struct{} // closed when the process has exited
	Code int           // exit code, valid after Done is closed
}

// Start starts cmd and appends its output to the file log. A dedicated OS thread starts the process and waits for
// it, because Linux sends the parent-death signal when the thread that started the child exits, not when the
// process exits.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the child has its own descriptor
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

// Signal sends s to the process group. It is a no-op after the process has exited, because its PID may have been
// reused.
func (p *Process) Signal(s syscall.Signal) {
	select {
	case <-p.Done:
	default:
		_ = syscall.Kill(-p.Cmd.Process.Pid, s) // the process may have just exited
	}
}

// exitCode returns the exit code as a shell reports it: 128 plus the signal number for a process killed by a
// signal.
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
