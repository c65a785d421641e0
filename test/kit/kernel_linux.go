package kit

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endWithParent has the kernel kill the process when the test is killed, which runs no cleanups then.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// LoopShare runs a busy loop and returns which share of that time it had a processor.
func LoopShare(length time.Duration) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
			panic(err)
		}
		return time.Duration(now.Nano())
	}
	began, before := time.Now(), used()
	for time.Since(began) < length {
	}
	return float64(used()-before) / float64(time.Since(began))
}
