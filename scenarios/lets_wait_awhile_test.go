package scenarios_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
	"github.com/kubenergy/kubenergy/test/kit"
)

const letsWaitAwhile = "lets-wait-awhile"

// simulate simulates a scenario file that contains a single strategy.
func simulate(t *testing.T, name string) *sim.Result {
	t.Helper()
	file, err := sim.ReadFile(filepath.Join(letsWaitAwhile, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	scenario, err := file.Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Strategies) != 1 {
		t.Fatalf("%s contains the strategies %v, want exactly one", name, file.Strategies)
	}
	strategy, err := strategy.New(file.Strategies[0])
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), scenario, file.Strategies[0], strategy)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLetsWaitAwhileNightly reproduces scenario I of Let's Wait Awhile: 365 nightly jobs of half an hour, planned
// for 1:00, that may start up to the given number of hours earlier or later. The expected savings, in percent,
// result from the authors' procedure and data.
func TestLetsWaitAwhileNightly(t *testing.T) {
	kit.Data(t, "lets-wait-awhile/ger_ci.csv", "lets-wait-awhile/fr_ci.csv")
	for _, c := range []struct {
		name      string
		intensity float64 // mean at 1:00
		saved     [4]float64
	}{
		{"germany", 305.3, [...]float64{2.49, 3.66, 7.21, 13.46}},
		{"france", 52.1, [...]float64{4.51, 5.87, 6.91, 7.58}},
	} {
		baseline := simulate(t, c.name)
		if n := len(baseline.Outcomes); n != 365 {
			t.Errorf("%s: %d jobs, want 365", c.name, n)
		}
		if got := float64(baseline.Carbon) / baseline.Energy.KWh(); math.Abs(got-c.intensity) > 0.05 {
			t.Errorf("%s: the mean carbon intensity at 1:00 is %.2f g/kWh, want %.1f", c.name, got, c.intensity)
		}
		for i, want := range c.saved {
			hours := 2 * (i + 1)
			r := simulate(t, fmt.Sprintf("%s-%dh", c.name, hours))
			got := 100 * float64(baseline.Carbon-r.Carbon) / float64(baseline.Carbon)
			t.Logf("%s ±%d h: saves %.3f %%, procedure of the authors %.2f %%", c.name, hours, got, want)
			if math.Abs(got-want) > 0.05 {
				t.Errorf("%s ±%d h: saves %.3f %%, want %.2f", c.name, hours, got, want)
			}
			if math.Abs(r.Energy.KWh()-baseline.Energy.KWh()) > 1e-9*baseline.Energy.KWh() {
				t.Errorf("%s ±%d h: energy is %v, want %v as in the baseline", c.name, hours, r.Energy, baseline.Energy)
			}
			least, err := oracle.Least(r.Scenario, oracle.FamilyNonPreemptive)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(float64(least-r.Carbon)) > 1e-9*float64(least) {
				t.Errorf("%s ±%d h: emissions are %v, want %v as the oracle", c.name, hours, r.Carbon, least)
			}
		}
	}
}
