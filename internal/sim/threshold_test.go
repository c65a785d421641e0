package sim_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// The limits in a scenario file apply to its jobs, computed by hand: one job arrives at 500 g and waits for at most
// 200 g.
func TestLimitsOfAScenario(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("grid.csv", "time,ci_lifecycle_g_per_kwh\n"+
		"2022-06-01T00:00:00Z,500\n2022-06-01T01:00:00Z,300\n2022-06-01T02:00:00Z,200\n2022-06-01T03:00:00Z,100\n")
	write("jobs.csv", "id,submit_time,duration,cpu,memory\na,0,600,1,1Gi\n")
	write("scenario.yaml", `
apiVersion: kubenergy.io/v1alpha1
kind: Scenario
workload: {file: jobs.csv}
nodes: ecsched50
maxDelay: 3h
sites: [{grid: {file: grid.csv}, price: 0.3}]
limits: {carbon: 200, percentile: 0.75, price: 0.3}
`)
	f, err := sim.ReadFile(filepath.Join(dir, "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	if want := (sched.Limits{Carbon: 200, Percentile: 0.75, Price: 0.3, HasPrice: true}); s.Jobs[0].Limits != want {
		t.Fatalf("Limits = %+v, want %+v", s.Jobs[0].Limits, want)
	}
	r := run(t, s, "carbon+threshold")
	if o := r.Outcomes[0]; o.Start.Sub(s.Start) != 2*time.Hour || o.Hold.Reason.Kind != sched.AboveThreshold {
		t.Errorf("job started after %v (%v), want 2h", o.Start.Sub(s.Start), o.Hold.Reason)
	}
	for limits, want := range map[string]string{
		"{carbon: -1}":     "limits.carbon is -1",
		"{percentile: 1}":  "limits.percentile is 1",
		"{price: 1e9}":     "limits.price is 1e+09",
		"{intensity: 200}": "intensity",
	} {
		write("scenario.yaml",
			"apiVersion: kubenergy.io/v1alpha1\nkind: Scenario\nworkload: {file: jobs.csv}\nnodes: ecsched50\n"+
				"sites: [{grid: {file: grid.csv}, price: 0.3}]\nlimits: "+limits+"\n")
		f, err := sim.ReadFile(filepath.Join(dir, "scenario.yaml"))
		if err == nil {
			_, err = f.Load()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("limits %s: expected an error that contains %[3]q, got %[2]v", limits, err, want)
		}
	}
}

// On the grid of a real year with a real trace, holds end by the latest start, and waiting for cleaner hours
// reduces emissions.
func TestThresholdOnTheGermanGrid(t *testing.T) {
	shared := filepath.FromSlash("../../../shared/data")
	if _, err := os.Stat(shared); err != nil {
		t.Skip("skipping because the shared data directory is missing: ", err)
	}
	f := &sim.File{
		Workload: sim.WorkloadFile{
			File: filepath.Join(shared, "workload/ecsched/ecsched_input_9549jobs.txt.gz"), Format: "ecsched",
		},
		Nodes: "ecsched50", Start: "2022-06-01", MaxDelay: "6h",
		Sites: []sim.SiteFile{{Zone: "DE", Grid: sim.GridFile{File: filepath.Join(shared,
			"carbon/em_hourly/DE_2022.csv.gz")}}},
	}
	emissions := map[string]float64{}
	for _, c := range []struct {
		name, strategy string
		limits         sim.LimitsFile
	}{
		{"now", "carbon", sim.LimitsFile{}},
		{"cleanest third", "carbon+threshold", sim.LimitsFile{Percentile: 0.33}},
		{"at most 400 g/kWh", "carbon+threshold", sim.LimitsFile{Carbon: 400}},
		{"never kept", "carbon+threshold", sim.LimitsFile{Carbon: 1}},
		{"best window", "carbon+window", sim.LimitsFile{}},
	} {
		f.Limits = c.limits
		s, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, s, c.strategy)
		held, late := 0, 0
		for i := range r.Outcomes {
			o, j := &r.Outcomes[i], &s.Jobs[i]
			if o.Released.After(j.LatestStart()) {
				late++
			}
			if !o.Released.Equal(j.Submitted) {
				held++
			}
			if c.name == "never kept" && o.Hold != nil && o.Hold.Reason.Kind != sched.CheaperLater {
				t.Fatalf("%s: job %s was released at %v: %v", c.name, j.ID, o.Released, o.Hold.Reason)
			}
		}
		if late > 0 {
			t.Errorf("%s: %d jobs were held beyond their latest start", c.name, late)
		}
		emissions[c.name] = r.Carbon.Kg()
		t.Logf("%s: %.2f kg, %d of %d held, energy %v", c.name, r.Carbon.Kg(), held, len(s.Jobs), r.Energy)
	}
	for _, name := range []string{"cleanest third", "at most 400 g/kWh", "never kept"} {
		if !(emissions[name] < emissions["now"]) {
			t.Errorf("%s: emissions = %.2f kg, want less than %.2f kg as of now", name, emissions[name], emissions["now"])
		}
	}
}
