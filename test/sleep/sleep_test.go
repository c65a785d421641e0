// Package sleep tests that machines of a real control plane sleep as in the simulator and that no pods are lost.
package sleep

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/power"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/scenarios"
	"github.com/kubenergy/kubenergy/test/kit"
)

const (
	strategyName = "carbon+window"
	delay        = "30m" // maximum delay, so that all jobs end within the slice
	slice        = 3 * time.Hour
)

// sliceOf writes a scenario with the jobs of the demo that end within three hours from 9:30 even if they are held,
// and returns the scenario as the simulator loads it. With the selected seed, one in five boots fails. The slice
// does not start at 9:00, because a job would then arrive two seconds after machines are suspended. The order of
// these two events would affect 5 % of the total sleep time, also in the simulation.
func sliceOf(t *testing.T, dir string) (file string, s *sim.Scenario) {
	t.Helper()
	file, err := scenarios.WriteDemo(dir)
	if err != nil {
		t.Fatal(err)
	}
	load := func() *sim.Scenario {
		f, err := sim.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Override(sim.Overrides{MaxDelay: delay}); err != nil {
			t.Fatal(err)
		}
		if s, err = f.Load(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin := load().Start.Add(3*time.Hour + 30*time.Minute)
	text = bytes.Replace(text, []byte("start: 2026-06-01T06:00Z"),
		[]byte("seed: 44\nstart: "+begin.Format(time.RFC3339)), 1)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var jobs bytes.Buffer
	trace := workload.Trace{Jobs: slices.DeleteFunc(s.Jobs, func(j sched.Job) bool {
		return j.Submitted.Before(begin) || j.LatestStart().Add(j.Duration).After(begin.Add(slice))
	})}
	if err := trace.WriteCSV(&jobs, begin); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "jobs.csv"), jobs.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, load()
}

// TestMachinesSleepAsSimulated runs three hours of the demo at six times the speed, with machines that always stay
// on and with machines that sleep.
func TestMachinesSleepAsSimulated(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("takes half an hour: set KUBENERGY_LONG")
	}
	dir := kit.Dir(t, "sleep")
	file, scenario := sliceOf(t, filepath.Join(dir, "input"))
	if len(scenario.Jobs) < 40 || !scenario.Start.Equal(time.Date(2026, 6, 1, 9, 30, 0, 0, time.UTC)) {
		t.Fatalf("unexpected scenario: %d jobs, starting at %v", len(scenario.Jobs), scenario.Start)
	}
	machine := kit.WatchMachine(t)
	var stdout, stderr bytes.Buffer
	args := []string{
		"run", "-f", file, "--dir", dir, "--strategy", strategyName, "--max-delay", delay, "--factor", "6", "-o", "json",
	}
	// The command fails if a machine is forced off or a pod is lost.
	if code := lab.Main(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, stderr.String())
	}
	var r report.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 4 || r.Runs[0].Sleep != nil || r.Runs[2].Sleep == nil {
		t.Fatalf("runs: %+v", r.Runs)
	}
	on, run := &r.Runs[0], &r.Runs[2]

	planner, err := strategy.New(strategyName)
	if err != nil {
		t.Fatal(err)
	}
	want, err := sim.Run(t.Context(), scenario, strategyName, planner)
	if err != nil {
		t.Fatal(err)
	}
	simulated := want.Sleep
	if err := want.AccountUntil(r.Scenario.Accounted); err != nil {
		t.Fatal(err)
	}
	t.Logf("asleep for %.2f machine hours, in simulation for %.2f; %d boots with %d failures, in simulation %d and "+
		"%d; at most %d cycles; waits of %.0f s, without sleep %.0f s; %.2f kWh, in simulation %.2f, without sleep %.2f",
		run.Sleep.AsleepHours, want.Sleep.Asleep.Hours(), run.Sleep.Boots, run.Sleep.FailedBoots, simulated.Boots,
		simulated.FailedBoots, run.Sleep.MaxCycles, run.MeanWaitSeconds, on.MeanWaitSeconds, run.EnergyKWh,
		want.Energy.KWh(), on.EnergyKWh)
	if simulated.Boots == 0 || simulated.FailedBoots == 0 || run.Sleep.Boots == 0 {
		t.Error("expected at least one boot and one failed boot")
	}
	if off := run.Sleep.AsleepHours/want.Sleep.Asleep.Hours() - 1; math.Abs(off) > 0.05 {
		t.Errorf("sleep time exceeds that of the simulation by %.1f %%, want at most 5 %%", 100*off)
	}
	decidedAgain(t, dir)
	for _, run := range []*report.Run{on, run} {
		if run.Jobs != len(scenario.Jobs) || run.UnplacedJobs > 0 || run.MissedDeadlines > 0 {
			t.Errorf("%s: of %d jobs, %d were not placed and %d missed their deadline", run.EmptyNodes, run.Jobs,
				run.UnplacedJobs, run.MissedDeadlines)
		}
		if run.DelayViolations > 0 {
			machine.TooSlow("%s: %d jobs were held longer than their maximum delay",
				run.EmptyNodes, run.DelayViolations)
		}
	}
	if most := sleep.DefaultPolicy().MaxCycles; run.Sleep.MaxCycles > most {
		t.Errorf("a machine was suspended %d times, want at most %d", run.Sleep.MaxCycles, most)
	}
	if longer := run.MeanWaitSeconds - on.MeanWaitSeconds; longer > 60 {
		machine.TooSlow("mean waiting time is %.0f s longer than without sleep", longer)
	}
}

// decidedAgain repeats the decision on each recorded snapshot and compares it with the recorded plan.
func decidedAgain(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.sleep.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("expected one record of decisions, got %v, error %v", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	decisions := 0
	for lines := json.NewDecoder(f); ; decisions++ {
		var recorded power.Recorded
		if err := lines.Decode(&recorded); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*recorded.Plan, sleep.Decide(recorded.Snapshot)); diff != "" {
			t.Errorf("unexpected decision at %v (-want,+got):\n%s", recorded.Snapshot.Now, diff)
		}
	}
	if t.Logf("repeated %d recorded decisions", decisions); decisions < 2 {
		t.Error("expected at least two recorded decisions")
	}
}
