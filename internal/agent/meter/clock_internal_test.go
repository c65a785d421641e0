package meter

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is the node's clock since boot, which goes on while the machine sleeps.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
