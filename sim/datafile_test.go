package sim_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/sim"
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
			t.Errorf("%s of %q: %q, %s; want %q, %s", c.name, c.document, got, said, c.want, c.err)
		}
	}
}
