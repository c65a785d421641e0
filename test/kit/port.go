package kit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Address chooses from this range of ports. Kernels use higher ports for outgoing connections and for listeners on
// port 0.
const (
	firstPort = 20_000
	portCount = 10_000
)

// Address returns a local address with a free TCP port. The port is reserved until the test ends. Address does not
// return it again, in this process or another, and the kernel does not assign it. A program that listens on it can
// therefore be stopped and restarted.
func Address(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "kubenergy-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range portCount {
		port := firstPort + rand.IntN(portCount)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil { // another test has reserved the port
			lock.Close()
			continue
		}
		listener, err := net.Listen("tcp", address)
		if err != nil { // a program outside the tests uses the port
			lock.Close()
			continue
		}
		listener.Close()
		t.Cleanup(func() { lock.Close() })
		return address
	}
	t.Fatalf("no free port found, starting at %d", firstPort)
	return ""
}
