package meter

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since boot, including time in suspend.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
