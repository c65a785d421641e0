package sim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/sim"
)

func TestFindFile(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	document := filepath.Join(dir, "scenario.yaml")
	for path, text := range map[string]string{
		document:                                 "a: ${KUBENERGY_DATA}/two/x.csv # ${KUBENERGY_DATA}/one/y.csv ${KUBENERGY_DATA}/two/z.csv\n",
		filepath.Join(data, "one", "y_2022.csv"): "", filepath.Join(data, "one", "y.csv"): "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const public = "${KUBENERGY_DATA}/"
	for _, c := range []struct{ document, name, data, want, err string }{
		{document, "jobs.csv", "", filepath.Join(dir, "jobs.csv"), ""},
		{"", "jobs.csv", "", "jobs.csv", ""},
		{document, "", "", "", ""},
		{document, "/jobs.csv", "", "/jobs.csv", ""},
		{document, public + "one/y.csv", data, filepath.Join(data, "one", "y.csv"), ""},
		{document, public + "one/y_20??.csv", data, filepath.Join(data, "one", "y_20??.csv"), ""},
		{
			document, public + "two/x.csv", data, "",
			public + "two/x.csv is not in " + data + ": run kubenergy data fetch one two",
		},
		{
			"", public + "two/x_*.csv", data, "",
			public + "two/x_*.csv is not in " + data + ": run kubenergy data fetch two",
		},
		{
			document, public + "one/y.csv", "", "", public + "one/y.csv: the variable KUBENERGY_DATA is not set: run " +
				"kubenergy data fetch one two --dir DIR, and set it to DIR",
		},
		{
			document, "$KUBENERGY_DATA/one/y.csv", data, "",
			`file "$KUBENERGY_DATA/one/y.csv": want a name without a variable, or ${KUBENERGY_DATA}/SET/FILE`,
		},
	} {
		t.Setenv(sim.DataVariable, c.data)
		got, err := sim.FindFile(c.document, c.name)
		said := ""
		if err != nil {
			said = err.Error()
		}
		if got != c.want || said != c.err {
			t.Errorf("FindFile() of %s in %q = %q, %s, want %q, %s", c.name, c.document, got, said, c.want, c.err)
		}
	}
}

// A trace with absolute submission times starts at the hour of its first job, rather than months earlier at the
// start of the grid file.
func TestStartOfADatedTrace(t *testing.T) {
	dir := t.TempDir()
	var hours strings.Builder
	begin := time.Date(2022, 10, 1, 0, 0, 0, 0, time.UTC)
	for h := range 10 * 24 {
		fmt.Fprintf(&hours, "%s,%d\n", begin.Add(time.Duration(h)*time.Hour).Format(time.RFC3339), 200+h)
	}
	const scenario = "apiVersion: kubenergy.io/v1alpha1\nkind: Scenario\nworkload: {file: jobs.csv}\nnodes: unlimited\n" +
		"sites: [{grid: {file: grid.csv}}]\n"
	for name, text := range map[string]string{
		"grid.csv":     "time,ci_lifecycle_g_per_kwh\n" + hours.String(),
		"jobs.csv":     "id,submit_unix_ms,duration_ms,cpu_count\n7,1665097260000,60000,16\n8,1665093500000,60000,16\n",
		"default.yaml": scenario, "given.yaml": scenario + "start: 2022-10-02\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]time.Time{
		"default.yaml": time.Date(2022, 10, 6, 21, 0, 0, 0, time.UTC),
		"given.yaml":   time.Date(2022, 10, 2, 0, 0, 0, 0, time.UTC),
	} {
		f, err := sim.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := f.Load(); err != nil || !s.Start.Equal(want) {
			t.Errorf("start of %s = %v, want %v, error %v", name, s.Start, want, err)
		}
	}
}

// A trace can be cut to its first jobs, in a file and by a flag, which takes precedence.
func TestFirstJobsOfATrace(t *testing.T) {
	dir := t.TempDir()
	const scenario = "apiVersion: kubenergy.io/v1alpha1\nkind: Scenario\nworkload: {file: jobs.csv, jobs: 3}\n" +
		"nodes: unlimited\nsites: [{grid: {file: grid.csv}}]\n"
	for name, text := range map[string]string{
		"grid.csv":      "time,ci_lifecycle_g_per_kwh\n2022-06-01T00:00Z,300\n2022-06-01T01:00Z,300\n",
		"jobs.csv":      "id,submit_time,duration,cpu\nd,9000000,60,1\nb,20,60,1\nc,30,60,1\na,10,60,1\n",
		"scenario.yaml": scenario,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int]string{
		0: "b c a; jobs.csv: simulated the first 3 of 4 jobs", 1: "a; jobs.csv: simulated the first 1 of 4 jobs",
		4: "d b c a; ", 9: "d b c a; ", -1: "; --jobs is -1: want the number of jobs, or 0 for all",
	} {
		f, err := sim.ReadFile(filepath.Join(dir, "scenario.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Override(sim.Overrides{Jobs: n}); err != nil {
			t.Fatal(err)
		}
		s, err := f.Load()
		var ids []string
		said := ""
		if err != nil {
			said = err.Error()
		} else {
			for _, j := range s.Jobs {
				ids = append(ids, j.ID)
			}
			said = strings.Join(s.Notes, "\n")
		}
		if got := strings.Join(ids, " ") + "; " + said; got != want {
			t.Errorf("--jobs %d: got %q, want %q", n, got, want)
		}
	}
}
