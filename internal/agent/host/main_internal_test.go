package host

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/agent/host/hosttest"
)

// long is the environment variable that enables long-running tests.
const long = "KUBENERGY_LONG"

func TestMain(m *testing.M) {
	// Create trees of files on an in-memory file system, which is much faster.
	if os.Getenv("TMPDIR") == "" && unix.Access("/dev/shm", unix.W_OK) == nil {
		_ = os.Setenv("TMPDIR", "/dev/shm")
	}
	os.Exit(hosttest.Main(m))
}
