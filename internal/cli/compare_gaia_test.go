package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/test/kit"
)

// gaia runs a comparison in scenarios/gaia.
func gaia(t *testing.T, name string, args ...string) *report.Sweep {
	t.Helper()
	kit.Data(t, "gaia/pai_1k.csv", "ensembleci")
	out := mustCompare(t, append([]string{"-f", filepath.Join("../../scenarios/gaia", name), "-o", "json"}, args...)...)
	s := new(report.Sweep)
	if err := json.Unmarshal([]byte(out), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func rowOf(t *testing.T, s *report.Sweep, strategy, forecast string) *report.SweepRow {
	t.Helper()
	for i := range s.Strategies {
		if r := &s.Strategies[i]; r.Strategy == strategy && r.Forecast == forecast && r.RestartCost == 0 {
			return r
		}
	}
	t.Fatalf("there is no row for %s with forecast %s", strategy, forecast)
	return nil
}

func noneViolated(t *testing.T, s *report.Sweep) {
	t.Helper()
	for _, r := range s.Strategies {
		if r.Violations != 0 || r.Unplaced != 0 {
			t.Errorf("%s, forecast %s, restart cost %v: got %d delay violations, %d unplaced jobs", r.Strategy, r.Forecast,
				r.RestartCost, r.Violations, r.Unplaced)
		}
	}
}

// One grid with two starts is enough to test everything on the real trace.
//
//test:norace
func TestGAIAInShort(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := gaia(t, "comparison.yaml", "--zones", "DE", "--starts", "0,2", "--forecast", "perfect,yesterday",
		"--strategies", "now,carbon-time,rolling,ecovisor,residual,wait-awhile")
	noneViolated(t, s)
	if best := rowOf(t, s, "wait-awhile", "perfect").Eta.Value; best < 0.999 || best > 1+1e-9 {
		t.Errorf("with perfect knowledge, wait-awhile has η %v", best)
	}
	for _, name := range []string{"carbon-time", "rolling", "ecovisor", "residual"} {
		perfect, naive := rowOf(t, s, name, "perfect").Eta.Value, rowOf(t, s, name, "yesterday").Eta.Value
		if !(0.3 < perfect && perfect < 1 && naive < perfect) {
			t.Errorf("%s: got η %v with a perfect forecast, %v with yesterday's curve", name, perfect, naive)
		}
	}
	if residual, ecovisor := rowOf(t, s, "residual", "perfect").Eta.Value,
		rowOf(t, s, "ecovisor", "perfect").Eta.Value; residual < ecovisor {
		t.Errorf("residual has η %v, ecovisor %v", residual, ecovisor)
	}
}

// The test reproduces the table in docs/measurements/comparisons.md.
//
//test:norace
func TestCompareGAIA(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") != "1" {
		t.Skip("set KUBENERGY_LONG=1 to run the whole comparison, which takes half an hour on one core")
	}
	s := gaia(t, "comparison.yaml")
	noneViolated(t, s)
	for _, c := range []struct {
		strategy, forecast string
		least              float64
	}{{"residual", "weather", 0.75}, {"residual", "history", 0.68}, {"rolling", "weather", 0.70}} {
		r := rowOf(t, s, c.strategy, c.forecast)
		t.Logf("%s, %s: eta %.3f [%.3f, %.3f], mean of zones %.3f, worst %s %.3f, odd starts %.3f", c.strategy,
			c.forecast, r.Eta.Value, *r.Eta.Low, *r.Eta.High,
			r.EtaMean.Value, r.WorstZone, *r.WorstEta, *r.EtaOther)
		if r.Eta.Value < c.least {
			t.Errorf("%s with %s: got η %v, want at least %v", c.strategy, c.forecast, r.Eta.Value, c.least)
		}
	}
	restarts := gaia(t, "restarts.yaml")
	noneViolated(t, restarts)
	for _, r := range restarts.Strategies {
		if r.Strategy == "residual" {
			t.Logf("restart cost %v: eta %.3f [%.3f, %.3f], %d jobs late by a restart", r.RestartCost, r.Eta.Value,
				*r.Eta.Low, *r.Eta.High, r.Tolerated)
		}
	}
}
