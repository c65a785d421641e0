package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/killtest"
	"github.com/kubenergy/kubenergy/internal/agent/host/hosttest"
	"github.com/kubenergy/kubenergy/test/kit"
)

const node = "node-1"

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// build builds the released agent without the race detector, which would distort cost and size.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kubenergy-agent")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubenergy-agent")
	cmd := exec.Command("go", "build", "-o", path, "github.com/kubenergy/kubenergy/cmd/kubenergy-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the agent: %w\n%s", err, out)
	}
	return path, nil
})

// process is a running agent.
type process struct {
	address string
	cmd     *exec.Cmd
	log     bytes.Buffer
}

// start starts the agent and stops it at the end of the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	a := &process{address: kit.Address(t)}
	a.cmd = exec.Command(path, append([]string{"--node-name", node, "--listen", a.address, "--log-format", "text"},
		args...)...)
	a.cmd.Stderr = &a.log
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("agent log:\n%s", a.log.String())
		}
	})
	kit.Await(t, time.Minute, "the agent responds", func(context.Context) (bool, error) {
		conn, err := net.Dial("tcp", a.address)
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	})
	return a
}

func (a *process) stop(signal syscall.Signal) {
	if a.cmd.ProcessState == nil {
		_ = a.cmd.Process.Signal(signal)
		_ = a.cmd.Wait()
	}
}

// powercap creates the powercap tree of a machine with one package, and advances its counter until the end of the
// test. The power of 0.5 W is low enough that the counter does not wrap around in the longest test.
func powercap(t *testing.T) (root string) {
	t.Helper()
	p, err := killtest.NewPowercap(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	p.Start(0.5)
	return p.Root
}
