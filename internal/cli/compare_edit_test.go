package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/study"
)

// editable writes a comparison with every kind of input.
func editable(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var grid, weather strings.Builder
	grid.WriteString("datetime_utc,ci_lifecycle_g_per_kwh\n")
	weather.WriteString("datetime,wind,temperature,dewpoint,radiation,precipitation\n")
	begin := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	for h := range 24 * 25 {
		at := begin.Add(time.Duration(h) * time.Hour)
		fmt.Fprintf(&grid, "%s,%d\n", at.Format(time.RFC3339), 200+150*(h/12%2)+h%7*5+h/24)
		fmt.Fprintf(&weather, "%s,%d,280,270,0,0\n", at.Format(time.DateTime), 5+h%9)
	}
	var jobs strings.Builder
	jobs.WriteString("id,submit_time,duration,cpu,allowed_delay\n")
	for i := range 12 {
		fmt.Fprintf(&jobs, "j%d,%d,%d,2,%ds\n", i, i*3600, 1800+i*300, i%3*6*3600)
	}
	for name, text := range map[string]string{
		"grid.csv": grid.String(), "weather.csv": weather.String(), "jobs.csv": jobs.String(),
		"nodes.csv": "name,cpu,idle_watts,max_watts\nn1,4,100,300\n",
		"prices.csv": strings.ReplaceAll(strings.ReplaceAll(grid.String(), ",", ",0."), ",0.ci_lifecycle_g_per_kwh",
			",price_per_kwh"),
		"comparison.yaml": `apiVersion: kubenergy.io/v1alpha1
kind: Comparison
name: edited
scenario:
  workload: {file: jobs.csv}
  nodes: unlimited
interruptible: true
zones:
- {name: one, grid: {file: grid.csv}, weather: weather.csv, price: 0.3}
starts: {first: 2022-01-05, step: 24h, count: 3}
strategies: [now, lowest-window, wait-awhile]
forecasts: [yesterday]
restartCosts: [0s]
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// After any edit, an existing results directory leads to the same results as a new one. Reused trials have
// unchanged results and current names.
//
//test:norace
func TestCompareAfterEdits(t *testing.T) {
	for name, edit := range map[string]struct {
		file, old, now string
		same           bool // the report does not change
		reused         int  // number of reused trials out of nine
	}{
		"grid":      {"grid.csv", "05T03:00:00Z,", "05T03:00:00Z,9", false, 0},
		"jobs":      {"jobs.csv", "j3,", "jobs3,", true, 0},
		"long jobs": {"jobs.csv", "j11,39600,5100", "j11,39600,7200", false, 0},
		"weather":   {"weather.csv", ",280,", ",281,", true, 0},
		"preset":    {"comparison.yaml", "nodes: unlimited", "nodes: demo24", false, 0},
		"price":     {"comparison.yaml", "price: 0.3", "price: 0.4", false, 0},
		"pue":       {"comparison.yaml", "price: 0.3", "price: 0.3, pue: 1.4", false, 0},
		// Trials that do not use a forecast and are not drawn are reused.
		"first start":     {"comparison.yaml", "first: 2022-01-05", "first: 2022-01-06", false, 1},
		"fewer starts":    {"comparison.yaml", "count: 3", "count: 2", false, 6},
		"step":            {"comparison.yaml", "step: 24h", "step: 48h", false, 6},
		"short names":     {"comparison.yaml", "[now, lowest-window", "[carbon+now, carbon+lowest-window", false, 9},
		"where":           {"comparison.yaml", "strategies:", "where: energy\nstrategies:", true, 0},
		"another name":    {"comparison.yaml", "{name: one", "{name: eins", false, 0},
		"forecast":        {"comparison.yaml", "[yesterday]", "[yesterday, perfect]", false, 9},
		"restart cost":    {"comparison.yaml", "[0s]", "[5m]", false, 6},
		"another lengths": {"comparison.yaml", "restartCosts", "lengths: learnt\nrestartCosts", false, 0},
		"carbon price":    {"comparison.yaml", "restartCosts", "carbonPrice: 80\nrestartCosts", false, 9},
		"seed":            {"comparison.yaml", "restartCosts", "seeds: [3]\nrestartCosts", true, 0},
		"baseline":        {"comparison.yaml", "restartCosts", "baseline: lowest-window\nrestartCosts", false, 9},
	} {
		t.Run(name, func(t *testing.T) {
			dir := editable(t)
			file, out := filepath.Join(dir, "comparison.yaml"), filepath.Join(dir, "out")
			before := played(t, file, out)
			kept := keys(t, out)
			path := filepath.Join(dir, edit.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(string(text), edit.old, edit.now, 1)
			if changed == string(text) {
				t.Fatalf("%s does not contain %q", edit.file, edit.old)
			}
			if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			after := played(t, file, out)
			fresh := filepath.Join(dir, "fresh")
			if want := played(t, file, fresh); after != want {
				t.Errorf("results differ with earlier results:\n%s\nand without:\n%s", after, want)
			}
			if (after == before) != edit.same {
				t.Errorf("the report is unchanged: %v, want %v", after == before, edit.same)
			}
			reused := 0
			for key := range keys(t, fresh) {
				if kept[key] {
					reused++
				}
			}
			if reused != edit.reused {
				t.Errorf("got %d reused trials, want %d", reused, edit.reused)
			}
		})
	}
}

// played returns the table of a comparison that stores its trials in a directory. It does not draw figures, which
// is slow.
func played(t *testing.T, path, out string) string {
	t.Helper()
	file, err := study.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Apply(&study.Overrides{}); err != nil {
		t.Fatal(err)
	}
	c, err := file.Plan()
	if err != nil {
		t.Fatal(err)
	}
	store, err := study.OpenStore(out, study.Shard{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	trials, err := c.Run(t.Context(), store, study.Shard{Count: 1}, 1, func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := finishComparison(cmdutil.Terminal{Out: &b, Err: &b, Now: time.Now}, c.Book("", nil), trials, "",
		"csv"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// keys returns the keys of the trials in a results directory.
func keys(t *testing.T, dir string) map[string]bool {
	t.Helper()
	s, _, err := study.ReadTrials(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for key := range s {
		all[key] = true
	}
	return all
}

// edited writes a copy of a file with replacements to the same directory.
func edited(t *testing.T, dir, from, to string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, from))
	if err != nil {
		t.Fatal(err)
	}
	now := strings.NewReplacer(replace...).Replace(string(text))
	path := filepath.Join(dir, to)
	if err := os.WriteFile(path, []byte(now), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func sweepOf(t *testing.T, args ...string) *report.Sweep {
	t.Helper()
	s := new(report.Sweep)
	if err := json.Unmarshal([]byte(mustCompare(t, append(args, "-o", "json")...)), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// A trial does not depend on the other selected starts, because models are trained at the same times.
//
//test:norace
func TestCompareOneStartOfSeveral(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes with the race detector, and make test also runs it without")
	}
	dir := editable(t)
	// Models require at least sixty days of data.
	var grid strings.Builder
	grid.WriteString("datetime_utc,ci_lifecycle_g_per_kwh\n")
	begin := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	for h := range 24 * 110 {
		fmt.Fprintf(&grid, "%s,%d\n", begin.Add(time.Duration(h)*time.Hour).Format(time.RFC3339),
			300+100*(h/12%2)+h*h%83+h%31*3)
	}
	if err := os.WriteFile(filepath.Join(dir, "grid.csv"), []byte(grid.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	file := edited(t, dir, "comparison.yaml", "learnt.yaml", "[yesterday]", "[history]", "first: 2022-01-05, step: 24h",
		"first: 2022-03-05, step: 400h")
	trials := func(starts string) map[string]report.Trial {
		out := t.TempDir()
		mustCompare(t, "-f", file, "--strategies", "lowest-window", "--starts", starts, "--out", out)
		s, _, err := study.ReadTrials(out)
		if err != nil {
			t.Fatal(err)
		}
		for key, trial := range s {
			trial.Day = nil
			s[key] = trial
		}
		return s
	}
	grams := func(all map[string]report.Trial, start int) float64 {
		for _, trial := range all {
			if trial.StartIndex == start && trial.Strategy == "lowest-window" {
				return trial.Grams
			}
		}
		t.Fatalf("there is no trial with start %d", start)
		return 0
	}
	all, some := trials("0-2"), trials("1,2")
	for _, start := range []int{1, 2} {
		if whole, alone := grams(all, start), grams(some, start); whole != alone {
			t.Errorf("start %d: got %v g with start 0, %v g without", start, whole, alone)
		}
	}
	common := 0
	for key := range some {
		if _, ok := all[key]; ok {
			common++
		}
	}
	if common != 2 { // trials of the first start are drawn
		t.Errorf("got %d of %d trials with the same key", common, len(some))
	}
}

// Empty nodes draw power, and strategies finish at different times. All trials are accounted until the same time.
//
//test:norace
func TestCompareAlignsTrials(t *testing.T) {
	dir := editable(t)
	file := edited(t, dir, "comparison.yaml", "few.yaml", "nodes: unlimited", "nodes: nodes.csv", "count: 3",
		"count: 1",
		"[now, lowest-window, wait-awhile]", "[now, lowest-window, lowest-slot]", "[yesterday]", "[perfect]")
	// Jobs run one at a time, so jobs that wait for the clean hours after midnight finish hours later than others.
	var jobs strings.Builder
	jobs.WriteString("id,submit_time,duration,cpu,allowed_delay\n")
	for i := range 10 {
		fmt.Fprintf(&jobs, "j%d,%d,18000,3,12h\n", i, 36000+600*i)
	}
	if err := os.WriteFile(filepath.Join(dir, "jobs.csv"), []byte(jobs.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	s := sweepOf(t, "-f", file, "--out", out)
	// A strategy that runs the same jobs on the same nodes uses the same energy, regardless of when they run.
	for _, r := range s.Strategies {
		if r.EnergyKWh < 0.999999*s.Strategies[0].EnergyKWh || r.EnergyKWh > 1.000001*s.Strategies[0].EnergyKWh {
			t.Errorf("%s used %v kWh, but %s used %v", r.Strategy, r.EnergyKWh, s.Strategies[0].Strategy,
				s.Strategies[0].EnergyKWh)
		}
	}
	store, _, err := study.ReadTrials(out)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[time.Time]bool{}
	for _, trial := range store {
		ends[trial.Accounted] = true
	}
	if len(ends) < 2 {
		t.Error("all trials end at the same time")
	}
	if again := sweepOf(t, "-f", file, "--out", out); again.Strategies[1].EnergyKWh != s.Strategies[1].EnergyKWh {
		t.Error("the energy differs with earlier results")
	}
	merged, _, code := compared(t, "compare", "merge", out, "-o", "csv")
	if want := mustCompare(t, "-f", file, "-o", "csv"); code != 0 || merged != want {
		t.Errorf("merged:\n%s\nwant:\n%s", merged, want)
	}
}

// Inputs with the same name in different directories are distinguished.
//
//test:norace
func TestManifestNamesInputs(t *testing.T) {
	dir := editable(t)
	for _, sub := range []string{"DE", "FR"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		edited(t, dir, "grid.csv", sub+"/carbon.csv", "05T03:00:00Z,",
			map[string]string{"DE": "05T03:00:00Z,1", "FR": "05T03:00:00Z,2"}[sub])
	}
	file := edited(t, dir, "comparison.yaml", "two.yaml",
		"- {name: one, grid: {file: grid.csv}, weather: weather.csv, price: 0.3}",
		"- {name: DE, grid: {file: DE/carbon.csv}}\n- {name: FR, grid: {file: ./FR/carbon.csv}}")
	out := filepath.Join(dir, "out")
	mustCompare(t, "-f", file, "--out", out)
	inputs := inputsOf(t, out)
	if inputs["DE/carbon.csv"] == "" || inputs["DE/carbon.csv"] == inputs["FR/carbon.csv"] ||
		inputs["jobs.csv"] == "" || len(inputs) != 3 {
		t.Errorf("unexpected inputs: %v", inputs)
	}
}

// inputsOf returns the hashes of the inputs by name, from the manifest of a results directory.
func inputsOf(t *testing.T, out string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var m report.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m.Inputs
}

// A pattern may match directories.
//
//test:norace
func TestManifestNamesInputsOfAPattern(t *testing.T) {
	dir := editable(t)
	text, err := os.ReadFile(filepath.Join(dir, "grid.csv"))
	if err != nil {
		t.Fatal(err)
	}
	header, rows, _ := strings.Cut(string(text), "\n")
	half := len(rows)/2 + strings.Index(rows[len(rows)/2:], "\n") + 1
	for sub, rows := range map[string]string{"y1": rows[:half], "y2": rows[half:]} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, sub, "g.csv"), []byte(header+"\n"+rows), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := edited(t, dir, "comparison.yaml", "pattern.yaml", "grid: {file: grid.csv}", "grid: {file: './y?/g.csv'}")
	out := filepath.Join(dir, "out")
	mustCompare(t, "-f", file, "--out", out)
	if inputs := inputsOf(t, out); inputs["y1/g.csv"] == "" || inputs["y2/g.csv"] == "" || len(inputs) != 4 {
		t.Errorf("unexpected inputs: %v", inputs)
	}
}

// Settings of a comparison must not be repeated in its scenario, and parts of different comparisons must not be
// merged.
//
//test:norace
func TestCompareRefusesBefore(t *testing.T) {
	dir := editable(t)
	for want, replace := range map[string][]string{
		"want restartCosts in the comparison": {
			"nodes: unlimited",
			"nodes: unlimited\n  interruptible: true\n  restartCost: 10m",
		},
		"want carbonPrice in the comparison": {"nodes: unlimited", "nodes: unlimited\n  carbonPrice: 80"},
		"want lengths in the comparison":     {"nodes: unlimited", "nodes: unlimited\n  learner: survival"},
		"want forecasts, and": {
			"nodes: unlimited",
			"nodes: unlimited\n  sites: [{grid: {file: x}, forecast: {model: yesterday}}]",
		},
		"want interruptible in the comparison": {
			"nodes: unlimited", "nodes: unlimited\n  interruptible: true",
			"interruptible: true", "interruptible: false",
		},
		"some zones have no price":        {"price: 0.3}", "price: 0.3}\n- {name: two, grid: {file: grid.csv}}"},
		"carbon+now and now are the same": {"[now,", "[carbon+now, now,"},
		"has a quoted start":              {"count: 3", "count: 1", "restartCosts", "quote: odd\nrestartCosts"},
		`published figure "watts"`: {
			"restartCosts",
			"published: [{strategy: now, figure: watts, value: 1, source: me}]\nrestartCosts",
		},
		`restartCost is "soon"`: {
			"restartCosts",
			"published: [{strategy: now, restartCost: soon, figure: eta, value: 1, source: me}]\nrestartCosts",
		},
		"has trials with several forecasts": {
			"[yesterday]", "[yesterday, perfect]", "restartCosts",
			"baseline: lowest-window\nrestartCosts",
		},
		"DIR/sites/nodes.csv: no such file": {"nodes: unlimited", "sites: [{nodes: sites/nodes.csv}]"},
	} {
		file := edited(t, dir, "comparison.yaml", "wrong.yaml", replace...)
		out := filepath.Join(dir, "out")
		_, messages, code := compared(t, "compare", "-f", file, "--out", out)
		want = strings.ReplaceAll(want, "DIR", dir)
		if code != 2 || !strings.Contains(messages, want) {
			t.Errorf("got exit code %d: %s, want %q", code, messages, want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: trials ran before the error", want)
		}
	}
}

func TestMergeRefusesOtherOptions(t *testing.T) {
	dir := editable(t)
	file := filepath.Join(dir, "comparison.yaml")
	other := edited(t, dir, "comparison.yaml", "other.yaml", "restartCosts", "bootstrapSeed: 7\nrestartCosts")
	parts := []string{filepath.Join(dir, "p0"), filepath.Join(dir, "p1")}
	for i, f := range []string{file, other} {
		mustCompare(t, "-f", f, "--shard", fmt.Sprintf("%d/2", i), "--out", parts[i])
	}
	if _, messages, code := compared(t, "compare", "merge", parts[0], parts[1]); code != 2 ||
		!strings.Contains(messages, "belong to different comparisons") {
		t.Errorf("exit code %d: %s", code, messages)
	}
}

// All strategies are drawn on the same day, even if one has finished before the second day.
//
//test:norace
func TestCompareDrawsOneDay(t *testing.T) {
	dir := editable(t)
	edited(t, dir, "jobs.csv", "jobs.csv", "0s\n", "00s\n") // delays of more than a day
	out := filepath.Join(dir, "out")
	mustCompare(t, "-f", filepath.Join(dir, "comparison.yaml"), "--starts", "0", "--out", out)
	store, _, err := study.ReadTrials(out)
	if err != nil {
		t.Fatal(err)
	}
	days := map[time.Time]int{}
	for _, trial := range store {
		if trial.Day != nil {
			days[trial.Day.Start]++
		}
	}
	if len(days) != 1 || days[time.Date(2022, 1, 5, 0, 0, 0, 0, time.UTC)] != 3 {
		t.Errorf("unexpected drawn days: %v", days)
	}
}

// If the prices end before the grid's series, trials are accounted only until that time.
//
//test:norace
func TestCompareWithShortPrices(t *testing.T) {
	dir := editable(t)
	text, err := os.ReadFile(filepath.Join(dir, "prices.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	if err := os.WriteFile(filepath.Join(dir, "prices.csv"), []byte(strings.Join(lines[:1+4*24+20], "")),
		0o600); err != nil {
		t.Fatal(err)
	}
	file := edited(t, dir, "comparison.yaml", "priced.yaml", "price: 0.3", "prices: {file: prices.csv, column: price_per_kwh}",
		"count: 3", "count: 1", "[now, lowest-window, wait-awhile]", "[now]")
	if s := sweepOf(t, "-f", file); len(s.Strategies) != 1 || !s.Strategies[0].Priced {
		t.Errorf("%+v", s.Strategies)
	}
}
