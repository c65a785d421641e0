package grid

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// ReadFiles is like [ReadCSV] for consecutive files of one zone. A name may be a glob pattern, e.g. DE_202?.csv.
func ReadFiles(o CSVOptions, names ...string) (Signal, Zone, error) {
	var files []*csvFile
	for _, path := range Files(names...) {
		text, err := ReadFile(path)
		if err != nil {
			return Signal{}, "", err
		}
		f, err := parseFile(path, text, &o)
		if err != nil {
			return Signal{}, "", err
		}
		if files = append(files, f); f.zone != files[0].zone {
			return Signal{}, "", fmt.Errorf("%s has zone %q, but %s has zone %q", path, f.zone, files[0].name,
				files[0].zone)
		}
	}
	slices.SortStableFunc(files, func(a, b *csvFile) int { return a.rows[0].time.Compare(b.rows[0].time) })
	return join(&o, files)
}

// Files expands file names and glob patterns. The name of an existing file is not expanded. A pattern without
// matches is returned unchanged, so that reading it results in an error.
func Files(names ...string) (paths []string) {
	for _, name := range names {
		found, _ := filepath.Glob(name)
		if _, err := os.Lstat(name); err == nil || len(found) == 0 {
			found = []string{name}
		}
		paths = append(paths, found...)
	}
	return paths
}
