// Package charts holds the CustomResourceDefinitions of the Helm chart, for programs that set up a cluster themselves.
package charts

import (
	"embed"
	"path"
)

//go:embed kubenergy/crds/*.yaml
var crds embed.FS

// CRDs returns the CustomResourceDefinitions of our kinds, one document each.
func CRDs() [][]byte {
	const folder = "kubenergy/crds"
	entries, err := crds.ReadDir(folder)
	if err != nil {
		panic(err) // it is embedded
	}
	documents := make([][]byte, len(entries))
	for i, entry := range entries {
		if documents[i], err = crds.ReadFile(path.Join(folder, entry.Name())); err != nil {
			panic(err)
		}
	}
	return documents
}
