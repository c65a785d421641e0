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

// TestNothingOutlivesKill kills a program that has started another as kill -9 does: the other ends too,
// and does not when merely the goroutine that asked for it ends.
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
		t.Fatalf("the parent says %q: %v", line, errors.Join(err, scan))
	}
	time.Sleep(100 * time.Millisecond) // no signal may follow
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child ended before its parent: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	defer func() {
		if t.Failed() {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}()
	kit.Eventually(t, 10*time.Second, "the child ends with its parent", func() bool { return ended(child) })
}

// ended counts a process that nobody has waited for yet as ended: in a container, nobody may.
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

// parent starts a child from a goroutine that ends, and waits to be killed.
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
