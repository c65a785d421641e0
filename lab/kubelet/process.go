package kubelet

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// starter starts processes from one thread of the operating system that lives as long as the starter: Linux kills a
// child with a death signal when the thread that started it ends, not when the program does.
type starter struct {
	requests chan request
	done     chan struct{}
}

type request struct {
	cmd    *exec.Cmd
	result chan error
}

func newStarter() *starter {
	s := &starter{requests: make(chan request), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for r := range s.requests {
			r.result <- r.cmd.Start()
		}
	}()
	return s
}

// stop ends the starter. All its processes must have ended.
func (s *starter) stop() {
	close(s.requests)
	<-s.done
}

// process is a running program in a process group of its own.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	code int // valid after done
}

// start runs a command with its output appended to a file.
func (s *starter) start(cmd *exec.Cmd, log string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	r := request{cmd, make(chan error, 1)}
	s.requests <- r
	if err := <-r.result; err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.code = exitCode(cmd.Wait())
	}()
	return p, nil
}

// signal reaches the process and those that it has started. An ended one is left alone: its number may be that
// of another process.
func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, s) // it may just have ended
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
