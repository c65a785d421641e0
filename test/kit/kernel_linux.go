package kit

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endWithParent configures the kernel to kill the process when the test process is killed, because cleanups do not
// run in that case.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// LoopShare runs a busy loop for length and returns the fraction of that time during which the loop had a
// processor.
func LoopShare(length time.Duration) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, before := time.Now(), clock(unix.CLOCK_THREAD_CPUTIME_ID)
	for time.Since(began) < length {
	}
	return float64(clock(unix.CLOCK_THREAD_CPUTIME_ID)-before) / float64(time.Since(began))
}

// CPUTime returns the processor time used by f, excluding goroutines that f starts.
func CPUTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := clock(unix.CLOCK_THREAD_CPUTIME_ID)
	f()
	return clock(unix.CLOCK_THREAD_CPUTIME_ID) - before
}

// CPUTimeOf returns the processor time used by a running process. Its resolution is one nanosecond, whereas that of
// /proc is 10 ms.
func CPUTimeOf(process int) time.Duration {
	const scheduled = 2 // CPUCLOCK_SCHED, see clock_getcpuclockid(3)
	return clock(int32(^process<<3 | scheduled))
}

func clock(id int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}
