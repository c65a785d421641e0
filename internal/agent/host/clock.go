package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since boot, including time in suspend. It is not affected by changes of the wall clock.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // supported since Linux 2.6.39
	}
	return time.Duration(t.Nano())
}

// BootID returns the kernel's random ID of the current boot.
func BootID() (string, error) { return bootID("/proc") }

func bootID(proc string) (string, error) {
	name := filepath.Join(proc, "sys/kernel/random/boot_id")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("reading the boot ID: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if id == "" || len(id) > 64 {
		return "", fmt.Errorf("reading the boot ID: %s contains %d characters", name, len(id))
	}
	return id, nil
}
