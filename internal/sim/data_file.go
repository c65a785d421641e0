package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// DataVariable is the variable that names the folder of public data, which "kubenergy data fetch" fills. Documents name
// its files as ${KUBENERGY_DATA}/gaia/pai_1k.csv, where the first part is the set that the command fetches.
const DataVariable = "KUBENERGY_DATA"

const inData = "${" + DataVariable + "}/"

var dataSets = regexp.MustCompile(regexp.QuoteMeta(inData) + `([\w-]+)/`)

// FindFile returns where a file is that a document names: relative to the document, in the folder of public data, or by
// its full name. The name may be a pattern. What is missing of public data is an error that says what fetches all of
// the document's.
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
	text, _ := os.ReadFile(document) // the file alone will do
	var sets []string
	for _, m := range dataSets.FindAllStringSubmatch(string(text)+inData+rest, -1) {
		sets = append(sets, m[1])
	}
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
