package lifecycle

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestTrainingContinues verifies that the program of interruptible-job.yaml, which docs/how-to/pauses.md explains,
// writes a checkpoint on SIGTERM and continues from it, so that pauses neither repeat nor omit steps.
func TestTrainingContinues(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(kit.Root, "examples/interruptible-job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, document, _ := strings.Cut(string(text), "---\n")
	var job batchv1.Job
	if err := yaml.UnmarshalStrict([]byte(document), &job); err != nil {
		t.Fatal(err)
	}
	command := job.Spec.Template.Spec.Containers[0].Command
	checkpoint := filepath.Join(t.TempDir(), "step")
	// run runs the program until it has done all steps or, if pause is set, for a moment. It returns its output.
	run := func(steps int, pause bool) string {
		t.Helper()
		program := exec.CommandContext(t.Context(), command[0], command[1:]...)
		program.Env = append(os.Environ(), fmt.Sprint("STEPS=", steps), "CHECKPOINT="+checkpoint, "SECONDS_PER_STEP=0.01")
		stdout, err := program.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		out := bufio.NewReader(stdout)
		first, err := out.ReadString('\n') // from now on, it handles SIGTERM
		if err != nil {
			t.Fatal(err)
		}
		if pause {
			time.AfterFunc(50*time.Millisecond, func() { _ = program.Process.Signal(syscall.SIGTERM) })
		}
		rest, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		_ = program.Wait()
		if code := program.ProcessState.ExitCode(); pause && code != 143 || !pause && code != 0 {
			t.Errorf("exit code %d", code)
		}
		return first + string(rest)
	}
	const endless, most = 1_000_000, 1000
	last := 0
	for pauses := 0; pauses < 3 || last == 0 && pauses < most; pauses++ {
		out, from, to := run(endless, true), 0, 0
		if _, err := fmt.Sscanf(out, "continues after step %d\nstopped after step %d\n", &from, &to); err != nil ||
			from != last || to < from {
			t.Fatalf("printed %q after step %d", out, last)
		}
		last = to
	}
	want := fmt.Sprintf("continues after step %d\nfinished after step %d\n", last, last+5)
	if out := run(last+5, false); out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
}
