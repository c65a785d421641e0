//go:build !linux

package experiment

import (
	"syscall"
	"time"
)

// dieWithParent does nothing: only Linux has such a signal.
func dieWithParent(*syscall.SysProcAttr) {}

// cpuOf knows nothing: the clocks of other processes are Linux's.
func cpuOf(int) (used time.Duration, ok bool) { return 0, false }
