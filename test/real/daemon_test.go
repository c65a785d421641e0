//go:build linux

package real

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A daemon is a process that runs until the test ends. What it prints stands in a file.
type daemon struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended, and err is set
	err  error
}

// start runs a daemon, which ends with the test, however that ends. After a failure the end of its log is shown.
func start(t *testing.T, dir, name string, cmd *exec.Cmd) *daemon {
	t.Helper()
	d := &daemon{name: name, log: filepath.Join(dir, name+".log"), cmd: cmd, done: make(chan struct{})}
	log, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has its own
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		d.err = cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() {
		d.stop()
		if t.Failed() {
			t.Logf("the last of what %s printed:\n%s", name, d.tail(tailLines))
		}
	})
	return d
}

const (
	tailLines = 40
	graceful  = 15 * time.Second
)

// stop asks, waits, and insists.
func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-d.done:
	case <-time.After(graceful):
		d.kill()
	}
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // it may have ended
	<-d.done
}

func (d *daemon) tail(n int) string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimRight(text, "\n")), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// eventually waits for something, as long as the daemons run that it depends on.
func eventually(t *testing.T, within time.Duration, what string, done func(context.Context) (bool, error),
	on ...*daemon,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var last error
	for {
		ok, err := done(ctx)
		if ok {
			return
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		for _, d := range on {
			select {
			case <-d.done:
				t.Fatalf("waiting until %s: %s ended: %v", what, d.name, d.err)
			default:
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %v it is not true that %s (last error: %v)", within, what, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
