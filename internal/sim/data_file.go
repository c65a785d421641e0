package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// DataVariable is the environment variable with the directory of public data, which is created by "kubenergy data
// fetch". Documents refer to its files as e.g. ${KUBENERGY_DATA}/gaia/pai_1k.csv. The first path element is the
// name of the data set.
const DataVariable = "KUBENERGY_DATA"

const inData = "${" + DataVariable + "}/"

var dataSets = regexp.MustCompile(regexp.QuoteMeta(inData) + `([\w-]+)/`)

// FindFile returns the path of a file referenced in a document. The name is absolute, relative to the document, or
// in the directory of public data. It may be a glob pattern. If public data is missing, the error contains the
// command that fetches all data sets of the document.
func FindFile(document, name string) (string, error) {
	if !strings.HasPrefix(name, "$") {
		if name == "" || document == "" || filepath.IsAbs(name) {
			return name, nil
		}
		return filepath.Join(filepath.Dir(document), name), nil
	}
	rest, ok := strings.CutPrefix(name, inData)
	if !ok {
		return "", fmt.Errorf("file %q: want a name without a variable, or %sSET/FILE", name, inData)
	}
	text, _ := os.ReadFile(document) // a missing document is not an error
	sets := sliceutil.Map(dataSets.FindAllStringSubmatch(string(text)+inData+rest, -1),
		func(m []string) string { return m[1] })
	slices.Sort(sets)
	fetch := "kubenergy data fetch " + strings.Join(slices.Compact(sets), " ")
	folder := os.Getenv(DataVariable)
	if folder == "" {
		return "", fmt.Errorf("%s: the variable %s is not set: run %s --dir DIR, and set it to DIR", name, DataVariable,
			fetch)
	}
	path, err := filepath.Abs(filepath.Join(folder, filepath.FromSlash(rest)))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(grid.Files(path)[0]); err != nil {
		return "", fmt.Errorf("%s is not in %s: run %s", name, folder, fetch)
	}
	return path, nil
}
