package scenarios_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/test/kit"
)

const (
	fairFile = "../docs/measurements/sleep.md"
	fairRuns = 20

	fairBegin = "<!-- figures: KUBENERGY_LONG=1 go test ./scenarios -run Fair -rewrite -->\n"
)

// fairStrategies lists "energy" and the strategies it is compared with. It must use less energy than the strategies
// with must set.
var fairStrategies = []struct {
	name string
	must bool
}{{"energy", false}, {"fcfs", true}, {"most-allocated", true}, {"random", true}, {"least-allocated", false}}

// fairRow contains the results of one strategy on one trace over all seeds.
type fairRow struct {
	trace, empty, strategy string
	kWh, wait              float64 // means
	boots, failed, bootKWh float64
	less, within           float64 // relative saving of "energy", and half of its confidence interval
}

// TestFair shuffles the names of machines with twenty seeds to exclude the influence of ties by name. "energy" must
// use less energy than strategies that ignore energy, with machines that sleep and with machines that are always
// on, and the confidence interval must exclude zero. It checks that the table in the documentation is current. Only
// KUBENERGY_LONG=1 includes the larger trace.
func TestFair(t *testing.T) {
	rows := fairOf(t, "demo", "demo/scenario.yaml")
	if !long {
		wantLines(t, fairFile, fairTable(rows))
		return
	}
	kit.Data(t, "ecsched/ecsched_input_9549jobs.txt")
	rows = append(rows, fairOf(t, "ECSched's", "ecsched/baseline.yaml")...)
	page, err := os.ReadFile(fairFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := bytes.Cut(page, []byte(fairBegin))
	_, after, ends := bytes.Cut(rest, []byte(figuresEnd))
	if !begins || !ends {
		t.Fatalf("%s does not contain %q and %q", fairFile, strings.TrimSpace(fairBegin), figuresEnd)
	}
	kit.Golden(t, fairFile, fmt.Appendf(nil, "%s%s%s%s%s", before, fairBegin, fairTable(rows), figuresEnd, after),
		*rewrite)
}

func fairOf(t *testing.T, trace, path string) []fairRow {
	t.Helper()
	return append(fair(t, trace, path, sim.EmptyNodesIdle), fair(t, trace, path, sim.EmptyNodesSleep)...)
}

// fair simulates a scenario with all strategies and seeds.
func fair(t *testing.T, trace, path, empty string) []fairRow {
	t.Helper()
	rows, less := make([]fairRow, len(fairStrategies)), make([][]float64, len(fairStrategies))
	for seed := range uint64(fairRuns) {
		file, err := sim.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file.Seed, file.EmptyNodes, file.Queue = seed+1, empty, sim.QueueFile{}
		scenario, err := file.Load()
		if err != nil {
			t.Fatal(err)
		}
		var results []*sim.Result
		for _, s := range fairStrategies {
			strategy, err := strategy.New(s.name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := sim.Run(t.Context(), scenario, s.name, strategy)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, r)
		}
		if _, err := sim.Align(results...); err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			less[i] = append(less[i], 1-float64(results[0].Energy/r.Energy))
			rows[i].add(r)
		}
	}
	for i, s := range fairStrategies {
		rows[i].trace, rows[i].empty, rows[i].strategy = trace, empty, s.name
		of := report.MeanOf(less[i], 0.05)
		rows[i].less, rows[i].within = of.Value, *of.High-of.Value
		if s.must && rows[i].less-rows[i].within <= 0 {
			t.Errorf("%s, empty machines %s: energy uses %.2f ± %.2f %% less than %s", trace, empty,
				100*rows[i].less, 100*rows[i].within, s.name)
		}
	}
	return rows
}

func (r *fairRow) add(of *sim.Result) {
	wait := 0.0
	for i := range of.Outcomes {
		wait += of.Outcomes[i].Idle(&of.Scenario.Jobs[i]).Seconds() / float64(len(of.Outcomes))
	}
	for _, sum := range [...]struct {
		to *float64
		of float64
	}{
		{&r.kWh, of.Energy.KWh()},
		{&r.wait, wait},
		{&r.boots, float64(of.Sleep.Boots)},
		{&r.failed, float64(of.Sleep.FailedBoots)},
		{&r.bootKWh, of.Sleep.BootEnergy.KWh()},
	} {
		*sum.to += sum.of / fairRuns
	}
}

func fairTable(rows []fairRow) string {
	var b strings.Builder
	b.WriteString("| trace | empty machines | strategy | energy | `energy` needs less by | mean wait | boots | " +
		"of them failed | boot energy |\n|---|---|---|---|---|---|---|---|---|\n")
	words := map[string]string{sim.EmptyNodesSleep: "sleep", sim.EmptyNodesIdle: "stay on"}
	for i := range rows {
		r := &rows[i]
		less := "–"
		if r.strategy != fairStrategies[0].name {
			less = fmt.Sprintf("%.1f ± %.1f %%", 100*r.less, 100*r.within)
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %.2f kWh | %s | %.0f s | %.1f | %.1f | %.3f kWh |\n", r.trace,
			words[r.empty], r.strategy, r.kWh, less, r.wait, r.boots, r.failed, r.bootKWh)
	}
	return b.String()
}
