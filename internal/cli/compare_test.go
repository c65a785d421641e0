package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/report"
)

// compared runs a command line and returns its output.
func compared(t *testing.T, args ...string) (out, messages string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, cmdutil.Terminal{Name: "kubenergy", Out: &stdout, Err: &stderr, Now: time.Now})
	return stdout.String(), stderr.String(), code
}

func mustCompare(t *testing.T, args ...string) string {
	t.Helper()
	out, messages, code := compared(t, append([]string{"compare"}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, messages)
	}
	return out
}

// comparisonHere writes a small comparison with a day of jobs on a grid with a clean night, from three starts.
func comparisonHere(t *testing.T) (file string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var grid, jobs strings.Builder
	grid.WriteString("datetime_utc,ci_lifecycle_g_per_kwh\n")
	begin := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	for h := range 24 * 16 {
		fmt.Fprintf(&grid, "%s,%d\n", begin.Add(time.Duration(h)*time.Hour).Format(time.RFC3339),
			200+150*(h/12%2)+h%7*5+h/24)
	}
	jobs.WriteString("id,submit_time,duration,cpu,allowed_delay\n")
	for i := range 40 {
		fmt.Fprintf(&jobs, "j%d,%d,%d,2,%ds\n", i, i*1800, 900+i*300, i%3*6*3600)
	}
	write("grid.csv", grid.String())
	write("jobs.csv", jobs.String())
	return write("comparison.yaml", `apiVersion: kubenergy.io/v1alpha1
kind: Comparison
name: small
scenario:
  workload: {file: jobs.csv}
  nodes: unlimited
interruptible: true
zones:
- {name: one, grid: {file: grid.csv}, price: 0.1}
- {name: two, grid: {file: grid.csv}, pue: 1.5, price: 0.2}
starts: {first: 2022-01-05, step: 48h, count: 3}
strategies: [now, lowest-window, wait-awhile]
forecasts: [perfect, yesterday]
`)
}

//test:norace
func TestCompareFindsTheOptimum(t *testing.T) {
	var s report.Sweep
	if err := json.Unmarshal([]byte(mustCompare(t, "-f", comparisonHere(t), "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Trials != 2*3*5 || len(s.Strategies) != 5 || len(s.Zones) != 2 {
		t.Fatalf("got %d trials, %d rows, zones %v", s.Trials, len(s.Strategies), s.Zones)
	}
	for _, r := range s.Strategies {
		switch {
		case r.Eta == nil:
			t.Fatalf("%s has no η", r.Strategy)
		case r.Strategy == "now" && (r.Eta.Value != 0 || r.Saving.Value != 0):
			t.Errorf("the baseline has a saving of %+v", r.Saving)
		case r.Eta.Value > 1+1e-9:
			t.Errorf("%s, forecast %s, is better than the optimum: %v", r.Strategy, r.Forecast, r.Eta.Value)
		case r.Strategy == "wait-awhile" && r.Forecast == "perfect" &&
			(r.Eta.Value < 0.999 || r.Family != report.Interruptible):
			t.Errorf("with perfect knowledge, wait-awhile has η %v in the family %s", r.Eta.Value, r.Family)
		case r.Violations != 0 || r.Unplaced != 0:
			t.Errorf("%s: got %d violations, %d unplaced jobs", r.Strategy, r.Violations, r.Unplaced)
		}
	}
	// PUE increases all emissions of a zone by the same factor.
	for _, r := range s.Strategies[:1] {
		if ratio := r.ByZone[1].Grams / r.ByZone[0].Grams; ratio < 1.4999 || ratio > 1.5001 {
			t.Errorf("zone two has %v times the emissions of zone one at a PUE of 1.5", ratio)
		}
	}
}

// The number of workers and of interruptions does not change the results.
//
//test:norace
func TestCompareGoesOnWhereItWas(t *testing.T) {
	file := comparisonHere(t)
	results := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, "trials.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	whole := t.TempDir()
	want := mustCompare(t, "-f", file, "-o", "json", "--workers", "1", "--out", whole)
	trials := results(whole)

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	if got := mustCompare(t, "-f", file, "-o", "json", "--workers", "7"); got != want {
		t.Error("the report differs between seven workers and one")
	}
	lines := strings.SplitAfter(strings.TrimSuffix(trials, "\n"), "\n")
	// The directory contains a line truncated by a crash, a modified line, and an unrelated line.
	broken := t.TempDir()
	text := strings.Join(lines[:10], "") + strings.Replace(lines[10], `"gramsCO2e":`, `"gramsCO2e":1`, 1) + "{}\n" +
		lines[12][:len(lines[12])/2]
	if err := os.WriteFile(filepath.Join(broken, "trials.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, messages, code := compared(t, "compare", "-f", file, "-o", "json", "--out", broken)
	if code != 0 || out != want || !strings.Contains(messages, "3 lines of earlier results are damaged") {
		t.Errorf("got exit code %d, the same report: %v, %s", code, out == want, messages)
	}
	if results(broken) != trials {
		t.Error("the results directory differs from that of a run without interruption")
	}
	for _, name := range []string{
		"report.html", "comparison.csv", "manifest.json", "pareto.svg", "pareto.png", "zones.svg", "day.png",
	} {
		if info, err := os.Stat(filepath.Join(broken, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}

	// An immediate cancellation loses no trials and reports no results.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, []string{"compare", "-f", file, "--out", t.TempDir()},
		cmdutil.Terminal{Name: "kubenergy", Out: &stdout, Err: &stderr, Now: time.Now}); code != 1 || stdout.Len() > 0 ||
		!strings.Contains(stderr.String(), "repeat the command to continue") {
		t.Errorf("after cancellation: got exit code %d, %q, %q", code, stdout.String(), stderr.String())
	}
}

//test:norace
func TestCompareInParts(t *testing.T) {
	file := comparisonHere(t)
	want := mustCompare(t, "-f", file, "-o", "csv")
	dir := t.TempDir()
	var parts []string
	for i := range 3 {
		part := filepath.Join(dir, fmt.Sprint("part-", i))
		parts = append(parts, part)
		args := []string{"compare", "-f", file, "--out", part, "--shard", fmt.Sprintf("%d/3", i)}
		terminal := cmdutil.Terminal{Name: "kubenergy", Out: new(bytes.Buffer), Err: new(bytes.Buffer), Now: time.Now}
		if i == 1 { // with the environment variables of Kubernetes
			args, terminal.Env = args[:len(args)-2], []string{"JOB_COMPLETION_INDEX=1", "JOB_COMPLETIONS=3"}
		}
		if i == 2 {
			_, messages, code := compared(t, append([]string{"compare", "merge"}, parts[:2]...)...)
			if code != 2 || !strings.Contains(messages, "10 of 30 trials are missing") {
				t.Errorf("with two of three shards: got exit code %d: %s", code, messages)
			}
		}
		if code := run(t.Context(), args, terminal); code != 0 {
			t.Fatalf("shard %d: %s", i, terminal.Err)
		}
	}
	out, messages, code := compared(t, append([]string{
		"compare", "merge", "-o", "csv", "--out", filepath.Join(dir, "all"),
	}, parts...)...)
	if code != 0 || out != want {
		t.Errorf("exit code %d: %s; merged:\n%s\nwant:\n%s", code, messages, out, want)
	}
}

//test:norace
func TestCompareRefuses(t *testing.T) {
	file := comparisonHere(t)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"want a comparison file", nil},
		{`the comparison has no zone "three": it has one, two`, []string{"-f", file, "--zones", "three"}},
		{`"2-5": want indices from 0 to 2`, []string{"-f", file, "--starts", "2-5"}},
		{`unknown forecast "oracle"`, []string{"-f", file, "--forecast", "oracle"}},
		{`the zone has no weather file`, []string{
			"-f", file, "--forecast", "weather", "--zones", "one", "--starts", "0",
		}},
		{`unknown strategy "greenest": want PLACEMENT, START-RULE`, []string{"-f", file, "--strategies", "greenest"}},
		{`unknown strategy "resdual" (did you mean residual?)`, []string{"-f", file, "--strategies", "resdual"}},
		{`, residual, `, []string{"-f", file, "--strategies", "nothing-like"}},
		{`unknown strategy "enrgy" (did you mean energy?)`, []string{"-f", file, "--strategies", "now,enrgy"}},
		{`(did you mean energy+residual?)`, []string{"-f", file, "--strategies", "energy+resdual"}},
		{`an order must follow a start rule: want energy+now/fifo`, []string{"-f", file, "--strategies", "energy/fifo"}},
		{`want cap(LEAST-MOST)`, []string{"-f", file, "--strategies", "cap(1"}},
		{`--shard is "3/3"`, []string{"-f", file, "--shard", "3/3", "--out", t.TempDir()}},
		{"set --out DIR", []string{"-f", file, "--shard", "0/3"}},
		{`unknown output format "xml"`, []string{"-f", file, "-o", "xml"}},
		{"is not a results directory", []string{"merge", t.TempDir()}},
	} {
		out, messages, code := compared(t, append([]string{"compare"}, c.args...)...)
		if code == 0 || out != "" || !strings.Contains(messages, c.want) {
			t.Errorf("%v: got exit code %d, %q, want %q", c.args, code, messages, c.want)
		}
	}
	for _, edit := range [][2]string{
		{"kind: Comparison", "kind: Scenario"},
		{"starts:", "begins:"},
		{"interruptible: true", "restartCosts: [0s, 5m]"},
		{"name: two", "name: one"},
		{"first: 2022-01-05", "first: 2021-01-05"},
		{"strategies: [now", "lengths: guessed\nstrategies: [now"},
		{", count: 3", ", count: 300"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(filepath.Dir(file), "wrong.yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), edit[0], edit[1], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, messages, code := compared(t, "compare", "-f", path); code != 2 {
			t.Errorf("%s: exit code %d: %s", edit[1], code, messages)
		}
	}
}
