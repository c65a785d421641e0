//go:build !linux

package kit

import (
	"os/exec"
	"time"
)

func endWithParent(*exec.Cmd) {}

// LoopShare always returns 1 because it is only implemented on Linux. Tests therefore never skip time limits.
func LoopShare(time.Duration) float64 { return 1 }

// CPUTime returns the wall-clock time of f.
func CPUTime(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// CPUTimeOf is only implemented on Linux.
func CPUTimeOf(int) time.Duration { panic("CPUTimeOf is only implemented on Linux") }
