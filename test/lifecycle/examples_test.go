package lifecycle

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestAHoldPaysAtAnyTime submits the Job of job.yaml in each second of a ten-minute period with the grid data
// written by the commands in gridzone-file.yaml. The Job must be held for at most ten minutes, and the saving must
// be worthwhile. The only exception is the second in which the clean minutes start.
func TestAHoldPaysAtAnyTime(t *testing.T) {
	job := waitingJob(t, filepath.Join(kit.Root, "examples/job.yaml"))
	signal := gridOf(t, filepath.Join(kit.Root, "examples/gridzone-file.yaml"))
	rule, err := strategy.New("carbon+window")
	if err != nil {
		t.Fatal(err)
	}
	built := policy.BuiltIn()
	s := sched.Snapshot{
		Sites: []*sched.Site{{Name: "minutes", Carbon: signal}},
		Policy: sched.Policy{
			MaxDelay: built.MaxDelay, MinSaving: built.MinSaving, MinSavingPerHour: built.MinSavingPerHour,
		},
	}
	const cycle = 10 * time.Minute
	atOnce := 0
	for after := time.Duration(0); after < cycle; after += time.Second {
		s.Now = signal.Series.Start().Add(after)
		job.Submitted = s.Now
		s.Queue = []sched.Job{job}
		d := rule.Plan(&s)[0]
		switch wait := d.Window.Start.Sub(s.Now); {
		case wait == 0:
			atOnce++
		case wait > cycle || d.Reason.Saving <= built.MinSaving || d.Reason.Carbon <= 0:
			t.Errorf("unexpected hold for submission after %v: delay %v, saving %.3f", after, wait, d.Reason.Saving)
		}
	}
	if atOnce > 1 {
		t.Errorf("Job would start immediately in %d of 600 seconds, want at most 1", atOnce)
	}
}

// waitingJob reads a Job with an allowed delay.
func waitingJob(t *testing.T, path string) sched.Job {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var object batchv1.Job
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatal(err)
	}
	work, err := policy.ReadJob(&object)
	if err != nil {
		t.Fatal(err)
	}
	return sched.Job{ID: object.Name, AllowedDelay: work.Marks.AllowedDelay, Duration: work.Marks.ExpectedDuration}
}

// gridOf runs the commands in the comment of a file that write grid.csv and returns the resulting signal.
func gridOf(t *testing.T, path string) grid.Signal {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(string(text), "#   echo ")
	commands, _, _ = strings.Cut("echo "+commands, "#   kubectl ")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(commands, "\n#   ", "\n"))
	cmd.Dir = kit.Dir(t, "grid")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	signal, _, err := grid.ReadCSV(filepath.Join(cmd.Dir, "grid.csv"), grid.CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return signal
}
