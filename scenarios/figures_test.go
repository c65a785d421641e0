package scenarios_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/scenarios"
	"github.com/kubenergy/kubenergy/test/kit"
)

// Files with the figures of the README, relative to this directory.
const (
	figuresFile = "../docs/measurements/figures.json"
	pictureFile = "../docs/images/demo.svg"
	readmeFile  = "../README.md"

	figuresBegin = "<!-- figures: go test ./scenarios -run Figures -rewrite -->\n"
	figuresEnd   = "<!-- end of figures -->"
)

// figures contains the figures of the README and the command that generates them.
type figures struct {
	Command string        `json:"command"`
	Note    string        `json:"note"`
	Runs    []demoFigures `json:"runs"`
}

type demoFigures struct {
	EmptyNodes      string  `json:"emptyNodes"`
	Strategy        string  `json:"strategy"`
	EnergyKWh       float64 `json:"energyKWh"`
	EnergySaved     float64 `json:"energySaved"`
	EmissionsKg     float64 `json:"emissionsKg"`
	EmissionsSaved  float64 `json:"emissionsSaved"`
	MeanWaitSeconds float64 `json:"meanWaitSeconds"`
	HeldJobs        int     `json:"heldJobs"`
	DelayViolations int     `json:"delayViolations"`
	Boots           int     `json:"boots"`
	FailedBoots     int     `json:"failedBoots"`
	BootEnergyKWh   float64 `json:"bootEnergyKWh"`
}

// TestFiguresAreCurrent simulates the demo with empty machines idle and asleep. It checks that the file of figures,
// the image and the table in the README are current.
func TestFiguresAreCurrent(t *testing.T) {
	r, picture := simulateDemo(t)
	all := figures{Command: "go test ./scenarios -run Figures -rewrite", Note: r.Note}
	for i := range r.Runs {
		run := &r.Runs[i]
		slept := cmp.Or(run.Sleep, &report.Sleep{})
		all.Runs = append(all.Runs, demoFigures{
			run.EmptyNodes, run.Strategy, run.EnergyKWh, run.Savings.Energy, run.EmissionsKg, run.Savings.Emissions,
			run.MeanWaitSeconds, run.HeldJobs, run.DelayViolations, slept.Boots, slept.FailedBoots, slept.BootEnergyKWh,
		})
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	kit.Golden(t, figuresFile, append(text, '\n'), *rewrite)
	kit.Golden(t, pictureFile, picture, *rewrite)

	readme, err := os.ReadFile(readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := bytes.Cut(readme, []byte(figuresBegin))
	_, after, ends := bytes.Cut(rest, []byte(figuresEnd))
	if !begins || !ends {
		t.Fatalf("README.md does not contain %q and %q", strings.TrimSpace(figuresBegin), figuresEnd)
	}
	kit.Golden(t, readmeFile, fmt.Appendf(nil, "%s%s%s%s%s", before, figuresBegin, all.table(), figuresEnd, after),
		*rewrite)
}

// simulateDemo returns the report of the demo with machines that are always on and machines that sleep, and the
// image of its timeline.
func simulateDemo(t *testing.T) (*report.Report, []byte) {
	t.Helper()
	path, err := scenarios.WriteDemo(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, err := sim.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	scenario, err := file.Load()
	if err != nil {
		t.Fatal(err)
	}
	var results []*sim.Result
	for _, scenario := range []*sim.Scenario{scenario.StayingAwake(), scenario} {
		for _, name := range file.Strategies {
			strategy, err := strategy.New(name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(t.Context(), scenario, name, strategy)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, r)
		}
	}
	if _, err := sim.Align(results...); err != nil {
		t.Fatal(err)
	}
	// More than three lines are not readable: the first strategy on machines that stay on and that sleep, and the last.
	shown, dir := []*sim.Result{results[0], results[len(results)/2], results[len(results)-1]}, t.TempDir()
	if _, err := report.WriteDir(dir, report.New(file, shown), shown); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "timeline.svg"))
	if err != nil {
		t.Fatal(err)
	}
	return report.New(file, results), svg
}

// table returns the table of the README.
func (f *figures) table() string {
	var b strings.Builder
	b.WriteString("| empty machines | strategy | energy | saved | emissions | saved | mean wait | held | boots |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	words := map[string]string{sim.EmptyNodesSleep: "sleep", sim.EmptyNodesIdle: "stay on"}
	for i, r := range f.Runs {
		name, energySaved, emissionsSaved := "`"+r.Strategy+"`", percent(r.EnergySaved), percent(r.EmissionsSaved)
		if r.Strategy == f.Runs[0].Strategy {
			name += ", as stock"
		}
		if i == 0 {
			energySaved, emissionsSaved = "–", "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %.2f kWh | %s | %.3f kg | %s | %s | %d | %d |\n", words[r.EmptyNodes], name,
			r.EnergyKWh, energySaved, r.EmissionsKg, emissionsSaved,
			humanize.Rounded(time.Duration(r.MeanWaitSeconds*float64(time.Second))), r.HeldJobs, r.Boots)
	}
	return b.String()
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// wantLines verifies that a page contains all lines of a part of a table.
func wantLines(t *testing.T, path, table string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table) {
		if !strings.Contains(string(page), line) {
			t.Errorf("%s does not contain this line, run the test with KUBENERGY_LONG=1 -rewrite:\n%s", path, line)
		}
	}
}
