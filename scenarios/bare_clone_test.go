package scenarios_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/cli"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/scenarios"
)

// documents returns the scenarios and comparisons in this directory.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if path == "experiments" {
			return filepath.SkipDir // experiments require a cluster and are tested in cli/experiment
		}
		if filepath.Ext(path) == ".yaml" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) < 22 {
		t.Fatalf("found %d files, error %v", len(paths), err)
	}
	return paths
}

// run executes the command for a document and returns its exit code and output.
func run(t *testing.T, path string) (code int, stdout, stderr string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	command := "simulate"
	if bytes.Contains(text, []byte("kind: Comparison")) {
		command = "compare"
	}
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), []string{command, "-f", path}, nil, &out, &errs)
	return code, out.String(), errs.String()
}

var inData = regexp.MustCompile(regexp.QuoteMeta("${"+sim.DataVariable+"}/") + `([\w-]+)/([\w.-]+)`)

// TestOnABareClone checks that every document either runs without external data or fails with a one-line error that
// contains the command to fetch all required data. Each directory must contain at least one document that runs
// without external data.
func TestOnABareClone(t *testing.T) {
	t.Setenv(sim.DataVariable, "")
	runs := map[string]bool{}
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var sets []string
		for _, m := range inData.FindAllStringSubmatch(string(text), -1) {
			sets = append(sets, m[1])
			if !slices.ContainsFunc(scenarios.Data(), func(f scenarios.DataFile) bool { return f.Name == m[1]+"/"+m[2] }) {
				t.Errorf("%s refers to %s, which is missing in the manifest", path, m[0])
			}
		}
		slices.Sort(sets)
		code, stdout, stderr := run(t, path)
		folder := filepath.Dir(path)
		if len(sets) == 0 {
			runs[folder] = true
			if code != 0 || !strings.Contains(stdout, "strategy") {
				t.Errorf("%s: exit code %d: %s%s", path, code, stderr, stdout)
			}
			continue
		}
		if !runs[folder] {
			runs[folder] = false // set to true by the first document that runs
		}
		want := fmt.Sprintf("the variable %s is not set: run kubenergy data fetch %s --dir DIR, and set it to DIR\n",
			sim.DataVariable, strings.Join(slices.Compact(sets), " "))
		if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, want) ||
			!strings.Contains(stderr, path) {
			t.Errorf("%s: exit code %d, error %s; want one line with the file and %s", path, code, stderr, want)
		}
	}
	for folder, some := range runs {
		if !some {
			t.Errorf("no file in %s runs without external data", folder)
		}
	}
}

// TestDataThatIsNotThere checks that the error contains the same command if the data directory lacks the file.
func TestDataThatIsNotThere(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(sim.DataVariable, folder)
	code, _, stderr := run(t, filepath.Join("gaia", "waiting.yaml"))
	if want := "/pai_1k.csv is not in " + folder + ": run kubenergy data fetch ensembleci gaia\n"; code != 2 ||
		!strings.HasSuffix(stderr, want) {
		t.Errorf("exit code %d with error %s, want an error that ends with %s", code, stderr, want)
	}
}

// TestManifest checks that the manifest contains a URL with a commit, the size, the checksum and the licence of
// each file.
func TestManifest(t *testing.T) {
	files := scenarios.Data()
	if len(files) < 50 {
		t.Errorf("got %d files in the manifest, want at least 50", len(files))
	}
	url := regexp.MustCompile(`^https://raw\.githubusercontent\.com/[\w.-]+/[\w.-]+/[0-9a-f]{40}/\S+$`)
	for i, f := range files {
		if !regexp.MustCompile(`^[a-z-]+/[\w.-]+$`).MatchString(f.Name) || !url.MatchString(f.URL) || f.Bytes <= 0 ||
			!regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(f.SHA256) || f.Licence == "" {
			t.Errorf("invalid entry %+v", f)
		}
		if i > 0 && files[i-1].Name >= f.Name {
			t.Errorf("%s is listed after %s, want sorted names", f.Name, files[i-1].Name)
		}
	}
}
