package scenarios_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/internal/workload/workloadtest"
	"github.com/kubenergy/kubenergy/test/kit"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the generated files")

// The grid starts at midnight and the trace starts at the beginning of the working day.
var (
	midnight = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	start    = midnight.Add(6 * time.Hour)
)

func TestDemoInputIsCurrent(t *testing.T) {
	var jobs bytes.Buffer
	if err := (&workload.Trace{Jobs: workloadtest.Demo(1, start)}).WriteCSV(&jobs, start); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"jobs.csv": jobs.Bytes(), "grid.csv": intensity()} {
		kit.Golden(t, filepath.Join("demo", name), want, *rewrite)
	}
}

// clouds contains the fraction of the solar power that is available on each day.
var clouds = []float64{1, 0.7, 0.9, 0.4, 1, 0.8, 0.6}

// intensityAt returns the carbon intensity of a synthetic grid in g/kWh. It has a base of 380 g, a solar valley
// around 13:00, and an evening peak at 19:30.
func intensityAt(hour, sun float64) float64 {
	bell := func(centre, width float64) float64 {
		x := (hour - centre) / width
		return math.Exp(-x * x / 2)
	}
	return 380 - 230*sun*bell(13, 2.6) + 90*bell(19.5, 1.8) - 40*bell(3, 2.5)
}

// intensity returns seven days of the synthetic grid as CSV.
func intensity() []byte {
	var b bytes.Buffer
	b.WriteString("datetime_utc,zone,ci_lifecycle_g_per_kwh,estimated\n")
	for day, sun := range clouds {
		for hour := range 24 {
			at := midnight.AddDate(0, 0, day).Add(time.Duration(hour) * time.Hour)
			fmt.Fprintf(&b, "%s,SYNTHETIC,%.1f,1\n", at.Format("2006-01-02T15:04Z"), intensityAt(float64(hour)+0.5, sun))
		}
	}
	return b.Bytes()
}

// TestDemoSaves checks that the demo can be replayed quickly and that emissions decrease from strategy to strategy.
func TestDemoSaves(t *testing.T) {
	r, _ := simulateDemo(t)
	if r.Scenario.Jobs > 300 {
		t.Errorf("the demo has %d jobs, too many to replay within minutes", r.Scenario.Jobs)
	}
	emissions := map[string]float64{}
	for i := range r.Runs {
		emissions[r.Runs[i].EmptyNodes+" "+r.Runs[i].Strategy] = r.Runs[i].EmissionsKg
	}
	for _, empty := range []string{sim.EmptyNodesIdle + " ", sim.EmptyNodesSleep + " "} {
		if !(emissions[empty+"carbon+window"] < emissions[empty+"energy"] &&
			emissions[empty+"energy"] < emissions[empty+"least-allocated"]) {
			t.Errorf("emissions do not decrease in the expected order, in kilograms: %v", emissions)
		}
	}
}
