package scenarios

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// DataFile describes a file of public data that is used by scenarios and documents but is not part of this
// repository.
type DataFile struct {
	Name    string // path in the data directory; the first element is the set
	Bytes   int64
	SHA256  string // hexadecimal
	URL     string
	Licence string
}

// Set returns the name of the set of files that are fetched together.
func (f *DataFile) Set() string {
	set, _, _ := strings.Cut(f.Name, "/")
	return set
}

//go:embed data.tsv
var manifest string

// Data returns the files in the manifest, sorted by name.
func Data() (files []DataFile) {
	for line := range strings.Lines(manifest) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "file\t") {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		bytes, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			panic(fmt.Sprintf("data.tsv: %v", err)) // unreachable, the manifest is embedded
		}
		files = append(files, DataFile{
			Name: fields[0], Bytes: bytes, SHA256: fields[2], URL: fields[3], Licence: fields[4],
		})
	}
	return files
}
