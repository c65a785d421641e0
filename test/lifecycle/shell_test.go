package lifecycle

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shell is a bash process that runs for the whole test, so that commands can be the same as those of a user,
// including exported variables and background jobs.
type shell struct {
	cmd   *exec.Cmd
	stdin *os.File
	codes *bufio.Scanner // reads the exit codes of commands
	dir   string
	count int
	end   func()
}

// newShell starts bash in a directory. Environment variables that refer to clusters or Helm are not inherited.
func newShell(t *testing.T, dir string, env ...string) *shell {
	t.Helper()
	in, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	codes, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash")
	cmd.Dir, cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = dir, in, os.Stderr, []*os.File{out}
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+dir, "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // includes background processes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	s := &shell{cmd: cmd, stdin: stdin, codes: bufio.NewScanner(codes), dir: dir}
	s.end = sync.OnceFunc(func() {
		stdin.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // kills the process group
		_ = cmd.Wait()                                      // the process was killed
		codes.Close()
	})
	t.Cleanup(s.end)
	return s
}

// try runs a command and returns its combined output and exit code.
func (s *shell) try(command string) (output string, code int) {
	s.count++
	path := filepath.Join(s.dir, fmt.Sprintf("command-%d.out", s.count))
	// The output is written to a file, because background processes that inherit a pipe would delay the exit code.
	if _, err := fmt.Fprintf(s.stdin, "{ %s\n} >%q 2>&1 3>&-; echo $? >&3\n", command, path); err != nil {
		return err.Error(), -1
	}
	code = -1
	if s.codes.Scan() {
		if _, err := fmt.Sscan(s.codes.Text(), &code); err != nil {
			code = -1
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error(), -1
	}
	return string(text), code
}

// run runs a command, which must succeed, and returns its output.
func (s *shell) run(t *testing.T, command string) string {
	t.Helper()
	began := time.Now()
	output, code := s.try(command)
	t.Logf("$ %s   (%v)\n%s", command, time.Since(began).Round(100*time.Millisecond), shorten(output))
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	return output
}

// say runs a command and verifies that its output contains all given strings.
func (s *shell) say(t *testing.T, command string, want ...string) {
	t.Helper()
	output := s.run(t, command)
	for _, w := range want {
		if !strings.Contains(output, w) {
			t.Errorf("output of %s does not contain %q:\n%s", command, w, output)
		}
	}
}

// shorten limits output to 30 lines.
func shorten(s string) string {
	lines := strings.SplitAfter(s, "\n")
	if len(lines) > 30 {
		lines = append(lines[:30], "…\n")
	}
	return strings.Join(lines, "")
}
