package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the node's clock since boot. It goes on while the node is suspended, and it cannot be set.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // every kernel since 2.6.39 has it
	}
	return time.Duration(t.Nano())
}

// BootID is the kernel's random name for the time since it started: what tells one boot from another.
func BootID() (string, error) { return bootID("/proc") }

func bootID(proc string) (string, error) {
	name := filepath.Join(proc, "sys/kernel/random/boot_id")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("reading the boot's ID: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if id == "" || len(id) > 64 {
		return "", fmt.Errorf("reading the boot's ID: %s holds %d characters", name, len(id))
	}
	return id, nil
}
