package scenarios

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// DataFile is a file of public data that scenarios and documents use. It is not part of this project.
type DataFile struct {
	Name    string // in the folder of data; its first part is the set
	Bytes   int64
	SHA256  string // in hex
	URL     string
	Licence string
}

// Set is what files that belong together are fetched by.
func (f *DataFile) Set() string {
	set, _, _ := strings.Cut(f.Name, "/")
	return set
}

//go:embed data.tsv
var manifest string

// Data lists the files of the manifest, by their names.
func Data() (files []DataFile) {
	for line := range strings.Lines(manifest) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "file\t") {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		bytes, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			panic(fmt.Sprintf("data.tsv: %v", err)) // it is part of the program
		}
		files = append(files, DataFile{
			Name: fields[0], Bytes: bytes, SHA256: fields[2], URL: fields[3], Licence: fields[4],
		})
	}
	return files
}
