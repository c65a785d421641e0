package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ownData writes a data directory with a trace and a grid.
func ownData(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	jobs, hours := "id,submit_time,duration,cpu\n", "datetime,home\n"
	for i := range 300 {
		jobs += fmt.Sprintf("j%d,%d,%dm,%d\n", i, 300*i, 10+i*7%120, 1+i%4)
	}
	start := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	for h := range 24 * 120 {
		hours += fmt.Sprintf("%s,%d\n", start.Add(time.Duration(h)*time.Hour).Format(time.RFC3339), 300+(h%24-12)*20)
	}
	for name, text := range map[string]string{
		"field.tsv": "# a comment\ngrid\ttest\thome\tgrid.csv\t1\ntrace\ttest\tours\tjobs.csv\n", "grid.csv": hours,
		"jobs.csv": jobs,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestOwnData runs two arms on a directory with other data, and continues after an interruption.
func TestOwnData(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.jsonl")
	o := options{
		data: ownData(t), half: "test", knowledge: Installed, out: out, seed: 24, count: 2, workers: 2,
		arms: []string{"stock", "energy", ours, "held stock"},
	}
	run := func() (table string, results []byte) {
		t.Helper()
		var b bytes.Buffer
		if err := o.main(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		results, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return b.String(), results
	}
	table, results := run()
	for _, want := range []string{"| guarded | energy | 2 |", "| held stock | stock | 2 |", "## All instances"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not contain %q:\n%s", want, table)
		}
	}
	if again, same := run(); again != table || !bytes.Equal(same, results) {
		t.Error("a second run adds results")
	}
	if err := os.WriteFile(out, results[:len(results)-100], 0o644); err != nil { // an interrupted write
		t.Fatal(err)
	}
	if again, _ := run(); again != table {
		t.Errorf("the table after an interruption differs (-first +continued):\n%s", cmp.Diff(table, again))
	}
	o.seed++
	if err := o.main(t.Context(), &bytes.Buffer{}); err == nil {
		t.Error("results of another seed are added to a file")
	}
}
