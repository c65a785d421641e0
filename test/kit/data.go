package kit

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/scenarios"
)

// repacked maps the set or full name of a file in the public data manifest to its location in ../shared/data, where
// some files are compressed or rounded.
var repacked = map[string]string{
	"ecsched":          "workload/ecsched",
	"electricity-maps": "carbon/em_hourly",
	"ensembleci":       "carbon/mix_weather",
	"gaia":             "workload/gaia",
	"openb":            "workload/alibaba_openb_2023",

	"lets-wait-awhile/fr_ci.csv":  "carbon/lets_wait_awhile/fr_ci_2020.csv",
	"lets-wait-awhile/ger_ci.csv": "carbon/lets_wait_awhile/ger_ci_2020.csv",
}

// Data returns a directory that contains the given sets and files of public data and configures scenarios to use
// it. It is the directory in KUBENERGY_DATA if that is set, and otherwise a temporary directory with links into
// ../shared/data. The test is skipped if a file is missing.
func Data(t testing.TB, names ...string) string {
	t.Helper()
	const variable = "KUBENERGY_DATA"
	folder, given := os.LookupEnv(variable)
	if !given {
		folder = t.TempDir()
	}
	for _, file := range scenarios.Data() {
		if !slices.Contains(names, file.Set()) && !slices.Contains(names, file.Name) {
			continue
		}
		path := filepath.Join(folder, filepath.FromSlash(file.Name))
		if !given {
			link(t, path, file.Name)
		}
		if _, err := os.Stat(path); err != nil {
			t.Skipf("missing data file %s: run kubenergy data fetch %s --dir DIR and set %s=DIR",
				file.Name, file.Set(), variable)
		}
	}
	t.Setenv(variable, folder)
	return folder
}

// link links the given file of ../shared/data to path if the file exists.
func link(t testing.TB, path, name string) {
	t.Helper()
	at, ok := repacked[name]
	if !ok {
		at = filepath.Join(repacked[filepath.Dir(name)], filepath.Base(name))
	}
	at = filepath.Join(Root, "..", "shared", "data", filepath.FromSlash(at))
	for _, at := range []string{at, at + ".gz"} { // readers detect the compression from the content
		if _, err := os.Stat(at); err != nil {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, path); err != nil {
			t.Fatal(err)
		}
	}
}

// Gzip returns compressed data.
func Gzip(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(data) // a buffer returns no error
	_ = z.Close()
	return b.Bytes()
}

// Golden checks that a file has the given content. If rewrite is set, it writes the file before.
func Golden(t testing.TB, path string, got []byte, rewrite bool) {
	t.Helper()
	if rewrite {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, got, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if diff := cmp.Diff(string(want), string(got)); err != nil || diff != "" {
		t.Errorf("%s is not current; if the change is intended, run go test -run '^%s$' -rewrite (error: %v; -want +got):"+
			"\n%s", path, t.Name(), err, diff)
	}
}
