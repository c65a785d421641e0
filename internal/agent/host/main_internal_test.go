package host

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/agent/host/hosttest"
)

// long is the variable that asks for tests that take minutes.
const long = "KUBENERGY_LONG"

func TestMain(m *testing.M) {
	// Trees of files are made much quicker in memory.
	if os.Getenv("TMPDIR") == "" && unix.Access("/dev/shm", unix.W_OK) == nil {
		_ = os.Setenv("TMPDIR", "/dev/shm")
	}
	os.Exit(hosttest.Main(m))
}
