// Package order tests that the order "aging" has the same effect on a real control plane as in the simulator.
package order

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/test/kit"
)

const (
	arrival = "balanced+now/fifo"
	aging   = "balanced+now/aging"
	jobs    = 2387 // a quarter of the trace, on a quarter of the machines
	factor  = "20"
)

// TestAgingAsSimulated replays every fourth job of ECSched's trace twenty times faster, in order of arrival and with
// the order "aging".
func TestAgingAsSimulated(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("takes half an hour: set KUBENERGY_LONG")
	}
	kit.Data(t, "ecsched/ecsched_input_9549jobs.txt")
	scenario := filepath.Join(kit.Root, "scenarios", "ecsched", "order.yaml")
	machine := kit.WatchMachine(t)
	var stdout, stderr bytes.Buffer
	args := []string{
		"run", "-f", scenario, "--nodes", "testdata/nodes.csv", "--jobs", strconv.Itoa(jobs), "--hours", "24",
		"--strategy", arrival + "," + aging, "--factor", factor, "--dir", kit.Dir(t, "order"), "-o", "json",
	}
	code := lab.Main(t.Context(), args, &stdout, &stderr)
	t.Log("\n" + stderr.String())
	var r report.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("exit code %d: %v", code, err)
	}
	if code != 0 {
		machine.TooSlow("%s", r.Note)
		return
	}
	if len(r.Runs) != 4 || r.Runs[0].Strategy != arrival || r.Runs[2].Strategy != aging {
		t.Fatalf("runs: %+v", r.Runs)
	}
	run := meanRunTime(t, scenario)
	var mean [4]float64
	for i := range r.Runs {
		if r.Runs[i].Jobs != jobs || r.Runs[i].UnplacedJobs > 0 {
			t.Fatalf("%s: of %d jobs, %d were not placed", r.Runs[i].Strategy, r.Runs[i].Jobs, r.Runs[i].UnplacedJobs)
		}
		mean[i] = run + r.Runs[i].MeanWaitSeconds
	}
	t.Logf("mean completion times: %.0f s in order of arrival (simulated %.0f s), %.0f s with the order aging "+
		"(simulated %.0f s)", mean[0], mean[1], mean[2], mean[3])
	if off := mean[2]/mean[3] - 1; math.Abs(off) > 0.03 {
		t.Errorf("mean completion time differs from the simulation by %.1f %%, want at most 3 %%", 100*off)
	}
	if gain := 1 - mean[2]/mean[0]; gain < 0.15 {
		t.Errorf("mean completion time is %.1f %% below that in order of arrival, want at least 15 %%", 100*gain)
	}
}

// meanRunTime returns the mean run time of the replayed jobs in seconds.
func meanRunTime(t *testing.T, scenario string) float64 {
	t.Helper()
	file, err := sim.ReadFile(scenario)
	if err != nil {
		t.Fatal(err)
	}
	s, err := file.Load()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i := range jobs { // the same selection as by the lab
		sum += s.Jobs[i*len(s.Jobs)/jobs].Duration.Seconds()
	}
	return sum / jobs
}
