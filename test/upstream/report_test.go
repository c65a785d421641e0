package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

func TestSettle(t *testing.T) {
	fine := func() *result {
		return &result{
			Suite: "scoring", Mode: enabled.Unknown, Stock: tally{Passed: 2}, Ours: tally{Passed: 2},
			Counts: enabled.Counts{Asked: 3, Cycles: 3},
		}
	}
	for _, c := range []struct {
		name   string
		change func(*result)
		want   string // empty if no problem is expected
	}{
		{"all pass", func(*result) {}, ""},
		{"one is flaky, one excused, one fails in stock", func(r *result) {
			r.Suspects = []suspect{
				{Test: "TestA", Verdict: flaky},
				{Test: "TestB", Verdict: excused},
				{Test: "TestC", Verdict: stockFails},
			}
		}, ""},
		{"one fails", func(r *result) {
			r.Suspects = []suspect{{Test: "TestA", Verdict: fails, Stock: []outcome{passed}, Ours: []outcome{failed}}}
		}, "TestA: stock [pass], ours [fail]"},
		{
			"the process fails", func(r *result) { r.Suspects = []suspect{{Test: whole, Verdict: fails}} },
			"(the process)",
		},
		{"no test ran", func(r *result) { r.Stock.Passed = 0 }, "stock passes no test"},
		{"the plugins were not called", func(r *result) { r.Counts = enabled.Counts{} }, "not called for any pod"},
		{"there are no pods", func(r *result) { r.Counts, r.Suite = enabled.Counts{}, "serving" }, ""},
		{"nodes were scored in a mode without scoring", func(r *result) { r.Counts.Scored = 1 }, "plugin scored nodes"},
		{"nodes were scored", func(r *result) { r.Counts.Scored, r.Mode = 1, enabled.Scored }, ""},
	} {
		r := fine()
		c.change(r)
		r.settle()
		if got := strings.Join(r.Wrong, "; "); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: problems = %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	r := &result{
		Suite: "preemption/misc", Mode: enabled.Scored, Kubernetes: "v1.36.4", StockTook: 90, OursTook: 91,
		StockCPU: 61.4, OursCPU: 59,
		Stock: count(outcomes{
			whole: failed, leaks: passed, "TestA": passed, "TestA/x": passed, "TestB": unfinished, "TestC": skipped,
		}),
		Ours:   count(outcomes{whole: passed, leaks: passed, "TestA": passed, "TestA/x": failed}),
		Counts: enabled.Counts{Asked: 30, Cycles: 20, Scored: 10},
		Suspects: []suspect{
			{Test: "TestA/x", Stock: []outcome{passed}, Ours: []outcome{failed}, Verdict: fails},
			{Test: "TestB", Verdict: flaky},
		},
		Wrong: []string{"TestA/x"},
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "preemption-misc.scored.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got result
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &got); diff != "" {
		t.Errorf("written result differs (-want,+got):\n%s", diff)
	}
	var table strings.Builder
	if err := printTable(&table, []*result{r}); err != nil {
		t.Fatal(err)
	}
	want := []string{"preemption/misc", "scored", "2/1/1", "1/1/0", "1", "0", "30", "20", "10", "1m1s", "59s", "WRONG"}
	if diff := cmp.Diff(want, strings.Fields(strings.Split(table.String(), "\n")[1])); diff != "" {
		t.Errorf("%s: %s", &table, diff)
	}
}
