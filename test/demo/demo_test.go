// Package demo runs a shortened version of the demo of kubenergy-lab and checks its complete output.
package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestDemo runs the demo on a real trace and real carbon intensities if they are available, and on the bundled
// input otherwise. It is the only test because a process can run only one control plane.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	dir := kit.Dir(t, "demo")
	args := []string{"demo", "--dir", dir, "--jobs", "60", "--minutes", "0.5", "-o", "json"}
	shared := filepath.FromSlash("../../../shared/data")
	if _, err := os.Stat(shared); err == nil {
		args = append(args, "--workload", filepath.Join(shared, "workload/ecsched/ecsched_input_9549jobs.txt.gz"),
			"--grid", filepath.Join(shared, "carbon/em_hourly/DE_2022.csv.gz"), "--zone", "DE", "--start",
			"2022-06-01T06:00:00Z")
	} else {
		t.Log("shared data directory not found, using the bundled input")
	}
	machine := kit.WatchMachine(t)
	var stdout bytes.Buffer
	stderr := talk{last: time.Now()}
	restore := redirectStandardError(t)
	code := lab.Main(t.Context(), args, &stdout, &stderr)
	if direct := restore(); strings.Contains(direct, "etcd-client") {
		t.Errorf("written to standard error: %s", direct)
	}
	t.Log("\n" + stderr.String())
	if code != 0 && stdout.Len() == 0 && strings.Contains(stderr.String(), "NOT VALID") {
		machine.TooSlow("the replay was aborted")
		return
	}
	_, _ = stderr.Write(nil) // measure the silence until now
	if stderr.silence > 10*time.Second {
		machine.TooSlow("demo printed no output for %v", stderr.silence.Round(time.Second))
	}
	var r report.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("exit code %d: %v", code, err)
	}
	invalid := strings.HasPrefix(r.Note, "NOT VALID")
	if invalid {
		machine.TooSlow("%s", r.Note)
	}
	if invalid != (code != 0) {
		t.Errorf("exit code %d with the note %q", code, r.Note)
	}
	var names []string
	for _, run := range r.Runs {
		names = append(names, strings.TrimSuffix(run.Strategy, " (not valid)"))
		if run.Jobs != 60 || run.UnplacedJobs != 0 || run.EnergyKWh <= 0 || run.EmissionsKg <= 0 {
			t.Errorf("strategy %s: unexpected result: %d jobs, %d unplaced, %v kWh, %v kg",
				run.Strategy, run.Jobs, run.UnplacedJobs, run.EnergyKWh,
				run.EmissionsKg)
		}
		if run.DelayViolations != 0 {
			machine.TooSlow("strategy %s: %d jobs were held longer than their maximum delay",
				run.Strategy, run.DelayViolations)
		}
	}
	if got, want := strings.Join(names, ", "), "stock, stock (simulated), stock, stock (simulated), energy, energy "+
		"(simulated), carbon+window, carbon+window (simulated)"; got != want {
		t.Fatalf("runs are %s, want %s", got, want)
	}
	if r.Runs[6].HeldJobs == 0 {
		t.Error("strategy carbon+window held no job, want at least one")
	}
	for _, run := range r.Runs[2:] {
		if run.EnergyKWh >= r.Runs[0].EnergyKWh || run.Sleep == nil || run.Sleep.AsleepHours <= 0 {
			t.Errorf("strategy %s with sleep used %v kWh, want less than the %v kWh of stock without sleep: %+v",
				run.Strategy, run.EnergyKWh,
				r.Runs[0].EnergyKWh, run.Sleep)
		}
	}
	if !strings.Contains(r.Note, "modelled") {
		t.Errorf("note %q does not state that energy is modelled", r.Note)
	}
	written := regexp.MustCompile(`(?m)\S+/report/(decisions\.csv|summary\.json|\w+\.svg)$`).FindAllString(
		stderr.String(), -1)
	if len(written) < 5 {
		t.Errorf("expected the output to list at least 5 written files, got %v", written)
	}
	for _, path := range written {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// redirectStandardError redirects the standard error of the process, including that of libraries, and returns a function
// that restores it and returns the output.
func redirectStandardError(t *testing.T) (restore func() string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := unix.Dup(unix.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup3(int(file.Fd()), unix.Stderr, 0); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		if err := errors.Join(unix.Dup3(old, unix.Stderr, 0), unix.Close(old), file.Close()); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// talk is a buffer that records the longest interval between two writes.
type talk struct {
	bytes.Buffer
	last    time.Time
	silence time.Duration
}

func (w *talk) Write(text []byte) (int, error) {
	w.silence, w.last = max(w.silence, time.Since(w.last)), time.Now()
	return w.Buffer.Write(text)
}
