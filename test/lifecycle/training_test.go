package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
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
	const steps = 40
	last, pauses := 0, 0
	for run := 0; ; run++ {
		program := exec.CommandContext(t.Context(), command[0], command[1:]...)
		program.Env = append(os.Environ(), fmt.Sprint("STEPS=", steps), "CHECKPOINT="+checkpoint, "SECONDS_PER_STEP=0.02")
		var out bytes.Buffer
		program.Stdout = &out
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		if run < 3 {
			time.AfterFunc(300*time.Millisecond, func() { _ = program.Process.Signal(syscall.SIGTERM) })
		}
		err := program.Wait()
		if want := fmt.Sprintf("continues after step %d\n", last); !strings.HasPrefix(out.String(), want) {
			// A program that receives SIGTERM before it can handle it terminates without a checkpoint.
			if out.Len() > 0 || err == nil {
				t.Fatalf("run %d printed %q, want %q", run, out.String(), want)
			}
			continue
		}
		if err == nil {
			if !strings.HasSuffix(out.String(), fmt.Sprintf("finished after step %d\n", steps)) {
				t.Errorf("run %d printed %q", run, out.String())
			}
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 143 {
			t.Fatalf("run %d ended with %v: %s", run, err, out.String())
		}
		pauses++
		before := last
		_, stopped, _ := strings.Cut(out.String(), "\n")
		if _, err := fmt.Sscanf(stopped, "stopped after step %d", &last); err != nil || last < before || last > steps {
			t.Fatalf("run %d printed %q", run, out.String())
		}
	}
	if pauses == 0 {
		t.Error("the program was never paused")
	}
}
