package report_test

import (
	"bytes"
	"errors"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/test/kit"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files; review the diff before committing it")

// golden compares got with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	kit.Golden(t, filepath.Join("testdata", name), got, *rewrite)
}

// compared returns a report of two runs, and their results.
func compared(t testing.TB, priced bool) (*report.Report, []*sim.Result) {
	t.Helper()
	s := scenario(t, priced)
	base, held := result(s, "least-allocated", 0, false), result(s, "carbon+window", 20, true)
	held.Energy, held.Carbon, held.Cost, held.End = 0.9*base.Energy, 0.5*base.Carbon, 1.1*base.Cost, at(80)
	results := []*sim.Result{base, held}
	file := &sim.File{Workload: sim.WorkloadFile{File: "jobs.csv"}, MaxDelay: "30m"}
	return report.New(file, results), results
}

func TestWrite(t *testing.T) {
	for name, c := range map[string]struct {
		priced, colours bool
		format          string
	}{
		"table.txt":          {format: "table"},
		"table-priced.txt":   {format: "table", priced: true},
		"table-coloured.txt": {format: "table", colours: true},
		"report.json":        {format: "json", priced: true},
		"report.csv":         {format: "csv", priced: true},
		"report-free.csv":    {format: "csv"},
	} {
		r, _ := compared(t, c.priced)
		var b bytes.Buffer
		if err := report.Write(&b, r, c.format, c.colours); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		golden(t, name, b.Bytes())
		if escapes := strings.Contains(b.String(), "\x1b"); escapes != c.colours {
			t.Errorf("%s: got escape sequences: %v, want %v", name, escapes, c.colours)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	r, _ := compared(t, false)
	if err := report.Write(&bytes.Buffer{}, r, "yml", false); err == nil ||
		err.Error() != `unknown output format "yml"` {
		t.Errorf("error %v", err)
	}
}

var errBroken = errors.New("broken pipe")

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteReportsWhatTheWriterDoes(t *testing.T) {
	r, _ := compared(t, false)
	for _, format := range []string{"table", "json", "csv"} {
		if err := report.Write(brokenPipe{}, r, format, false); !errors.Is(err, errBroken) {
			t.Errorf("%s: got error %v, want %v", format, err, errBroken)
		}
	}
}

func TestWriteDir(t *testing.T) {
	r, results := compared(t, true)
	dir := filepath.Join(t.TempDir(), "new", "results")
	drawnBefore := map[string]string{}
	for range 2 { // the second iteration overwrites the files of the first one
		paths, err := report.WriteDir(dir, r, results)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, filepath.Join(dir, e.Name()))
		}
		if diff := cmp.Diff(names, paths); diff != "" {
			t.Errorf("files in the directory and returned paths differ (-files +paths)\n%s", diff)
		}
		for _, want := range []string{
			"decisions.csv", "summary.json", "summary.csv", "timeline.csv", "nodes.csv", "holds.csv",
		} {
			if !slices.Contains(names, filepath.Join(dir, want)) {
				t.Errorf("missing %s in %v", want, names)
			}
		}
		for _, figure := range []string{"timeline", "bars", "waits", "nodes", "holds"} {
			svg, err := os.ReadFile(filepath.Join(dir, figure+".svg"))
			if err != nil {
				t.Fatal(err)
			}
			drawn, err := os.ReadFile(filepath.Join(dir, figure+".png"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := png.Decode(bytes.NewReader(drawn)); err != nil {
				t.Errorf("%s.png: %v", figure, err)
			}
			if before := drawnBefore[figure]; before != "" && before != string(svg)+string(drawn) {
				t.Errorf("%s differs when drawn twice", figure)
			}
			drawnBefore[figure] = string(svg) + string(drawn)
		}
	}
	decisions, err := os.ReadFile(filepath.Join(dir, "decisions.csv"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "decisions.csv", decisions)
}

func TestWriteDirLeavesNothingHalfWritten(t *testing.T) {
	r, results := compared(t, false)
	dir := t.TempDir()
	// A directory that is not empty cannot be replaced by a file, even by root.
	if err := os.MkdirAll(filepath.Join(dir, "summary.json", "occupied"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := report.WriteDir(dir, r, results); err == nil || !strings.Contains(err.Error(), "summary.json") {
		t.Errorf("got error %v, want one that contains summary.json", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("temporary file %s remains", e.Name())
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := report.WriteDir(filepath.Join(file, "below"), r, results); err == nil {
		t.Error("WriteDir() below a file returned no error")
	}
}
