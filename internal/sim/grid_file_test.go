package sim_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/sim"
)

// gridScenario writes the constructed files and returns the scenario with a site.
func gridScenario(t *testing.T, site string, files map[string]string) *sim.File {
	t.Helper()
	dir := t.TempDir()
	files["scenario.yaml"] = "apiVersion: kubenergy.io/v1alpha1\nkind: Scenario\nworkload: {file: jobs.csv}\n" + site
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := sim.ReadFile(filepath.Join(dir, "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Costs can be compared without a grid file, with a constant intensity.
func TestConstantIntensity(t *testing.T) {
	files := map[string]string{
		"jobs.csv":   "id,submit_time,duration,cpu\n1,0,1h,1\n",
		"prices.csv": "datetime_utc,price_per_kwh\n2026-06-01T00:00Z,0.1\n2026-06-01T01:00Z,0.2\n",
	}
	load := func(site string) (*sim.Scenario, error) {
		return gridScenario(t, "nodes: demo24\nsites: [{name: pjm, "+site+"}]\n", files).Load()
	}
	s, err := load("prices: {file: prices.csv}, carbon: 400")
	if err != nil {
		t.Fatal(err)
	}
	if c, p := s.Sites[0].Carbon.Series, s.Sites[0].Price.Series; c.At(s.Start) != 400 || !c.End().Equal(p.End()) {
		t.Errorf("intensity %v until %v, prices until %v", c.At(s.Start), c.End(), p.End())
	}
	for site, want := range map[string]string{
		"prices: {file: prices.csv}": "has no grid file: set grid, or prices and a constant intensity",
		"carbon: 400":                "has no grid file",
		"prices: {file: prices.csv}, carbon: 400, grid: {file: prices.csv}": "both grid and carbon",
		"prices: {file: prices.csv}, carbon: -1":                            "carbon is -1: want 0 to 10000",
	} {
		if _, err := load(site); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", site, err, want)
		}
	}
}

// Prices are hourly until 30 September 2025 22:00 UTC and quarter-hourly from then on, in one file or in two. They
// are also read correctly in steps of an hour.
func TestPricesWithAChangeOfStep(t *testing.T) {
	const header = "Datetime (UTC),Price (EUR/MWhe)\n"
	start := time.Date(2025, 9, 29, 22, 0, 0, 0, time.UTC)
	change := start.Add(24 * time.Hour)
	var carbon, hours, quarters, all strings.Builder
	carbon.WriteString("datetime,carbon_intensity\n")
	for i := range 72 * 4 {
		at := start.Add(time.Duration(i) * 15 * time.Minute)
		hour, quarter := i/4, i%4
		if quarter == 0 {
			fmt.Fprintf(&carbon, "%s,%v\n", at.Format(time.RFC3339), 300+50*float64((22+hour)%24-12)/12)
		}
		price := 10 + float64((hour*20+60)%240)/3
		if !at.Before(change) {
			price += float64(12 * quarter)
		}
		row := fmt.Sprintf("%s,%.2f\n", at.Format(time.DateTime), price)
		all.WriteString(row)
		switch {
		case !at.Before(change):
			quarters.WriteString(row)
		case quarter == 0:
			hours.WriteString(row)
		}
	}
	costs := func(prices string) (costs [2]float64) {
		t.Helper()
		f := gridScenario(t, "start: 2025-09-29T22:00:00Z\nsites: [{name: de, zone: DE, nodes: unlimited, grid: {file: grid.csv},"+
			" prices: "+prices+"}]\nstrategies: [least-allocated, carbon+window]\nweights: {carbon: 0, price: 1}\n", map[string]string{
			"grid.csv": carbon.String(), "mtu.csv": header + hours.String() + quarters.String(),
			"part-1.csv": header + hours.String(), "part-2.csv": header + quarters.String(),
			"same.csv": header + all.String(),
			"jobs.csv": "id,submit_time,duration,cpu,memory,allowed_delay\na,0,2h,4,4Gi,24h\nb,90000,1h,8,4Gi,12h\nc,7200,30m,2,4Gi,6h\n",
		})
		s, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range f.Strategies {
			costs[i] = float64(run(t, s, name).Cost)
		}
		return costs
	}
	want := costs("{file: same.csv}")
	for _, prices := range []string{"{file: mtu.csv}", "{file: 'part-?.csv'}"} {
		if got := costs(prices); math.Abs(got[0]-want[0]) > 1e-12 || math.Abs(got[1]-want[1]) > 1e-12 || want[1] >= want[0] {
			t.Errorf("prices: %s: costs %v, want %v as with quarters", prices, got, want)
		}
	}
	if got, want := costs("{file: mtu.csv, every: 1h}"), costs("{file: same.csv, every: 1h}"); got != want || got[0] == 0 {
		t.Errorf("costs with hourly prices: %v, want %v", got, want)
	}
}

// A file in local time is refused without a time zone and read correctly with one: the job runs at 10:00 local time.
func TestGridInLocalTime(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("datetime,carbon_intensity\n")
	for i, h := 0, 0; h < 30; h++ {
		if h != 2 {
			fmt.Fprintf(&rows, "%s,%d\n", time.Date(2026, 3, 29, h, 0, 0, 0, time.UTC).Format(time.DateTime), 300+i)
			i++
		}
	}
	load := func(options string) (*sim.Scenario, error) {
		return gridScenario(t, "start: 2026-03-29T08:00:00Z\nsites: [{name: s, zone: DE, nodes: unlimited, grid: {file: grid.csv"+
			options+"}}]\nstrategies: [least-allocated]\n", map[string]string{
			"grid.csv": rows.String(), "jobs.csv": "id,submit_time,duration,cpu\na,0,1h,1\n",
		}).Load()
	}
	for _, options := range []string{"", ", fill: 3h"} {
		if _, err := load(options); err == nil || !strings.Contains(err.Error(), "grid.csv:4: ") ||
			!strings.Contains(err.Error(), "set timeZone") || strings.Contains(err.Error(), "fill") {
			t.Errorf("%q: %v", options, err)
		}
	}
	if _, err := load(", timeZone: Mars"); err == nil || !strings.Contains(err.Error(), "scenario.yaml: timeZone") {
		t.Error(err)
	}
	s, err := load(", timeZone: Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, s, "least-allocated").Carbon; math.Abs(float64(got)-0.309) > 1e-9 {
		t.Errorf("emissions %v g, want 0.309: 309 g/kWh for 0.001 kWh", got)
	}
}
