package child

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
)

const parentEnv = "CHILD_TEST_PARENT"

// TestNothingOutlivesKill verifies that a child exits when its parent is killed with SIGKILL, and that it keeps
// running when only the goroutine that started it returns.
func TestNothingOutlivesKill(t *testing.T) {
	if dir := os.Getenv(parentEnv); dir != "" {
		parent(dir)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNothingOutlivesKill$")
	cmd.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var child int
	if _, scan := fmt.Sscan(line, &child); scan != nil {
		t.Fatalf("parent printed %q: %v", line, errors.Join(err, scan))
	}
	time.Sleep(100 * time.Millisecond) // verify that no signal follows
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("child exited before its parent: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the process was killed
	defer func() {
		if t.Failed() {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}()
	kit.Eventually(t, 10*time.Second, "the child exits with its parent", func() bool { return ended(child) })
}

// ended reports whether a process has exited. A zombie counts as exited, because a container may lack an init
// process that reaps it.
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	var id int
	var name, state string
	_, err = fmt.Sscan(string(text), &id, &name, &state)
	return err == nil && state == "Z"
}

// parent starts a child from a goroutine that returns, and then blocks until the process is killed.
func parent(dir string) {
	started := make(chan *Process)
	go func() {
		p, err := Start(exec.Command("sleep", "60"), filepath.Join(dir, "log"))
		if err != nil {
			panic(err)
		}
		started <- p
	}()
	fmt.Println((<-started).Cmd.Process.Pid)
	select {}
}
