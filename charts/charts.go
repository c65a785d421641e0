// Package charts provides the CustomResourceDefinitions of the Helm chart to programs that set up clusters.
package charts

import (
	"embed"
	"path"
)

//go:embed kubenergy/crds/*.yaml
var crds embed.FS

// CRDs returns the CustomResourceDefinitions of KubEnergy, one document for each.
func CRDs() [][]byte {
	const folder = "kubenergy/crds"
	entries, err := crds.ReadDir(folder)
	if err != nil {
		panic(err) // unreachable, the files are embedded
	}
	documents := make([][]byte, len(entries))
	for i, entry := range entries {
		if documents[i], err = crds.ReadFile(path.Join(folder, entry.Name())); err != nil {
			panic(err)
		}
	}
	return documents
}
