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

// Ports that Address chooses from. Kernels choose higher ones for outgoing connections and for listeners on port 0.
const (
	firstPort = 20_000
	portCount = 10_000
)

// Address returns an address of this machine with a free TCP port. The port is reserved until the test ends: no other
// call of Address returns it, in this process or another, and the kernel does not assign it. The program that listens on
// it can therefore start, stop and start again.
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
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil { // another test has it
			lock.Close()
			continue
		}
		listener, err := net.Listen("tcp", address)
		if err != nil { // a program that is no test has it
			lock.Close()
			continue
		}
		listener.Close()
		t.Cleanup(func() { lock.Close() })
		return address
	}
	t.Fatalf("no port from %d on is free", firstPort)
	return ""
}
