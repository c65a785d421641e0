// Package scenarios provides the bundled inputs of KubEnergy, so that the binaries can run a demo without other
// files.
package scenarios

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DemoNote describes the bundled input.
const DemoNote = "bundled input: a synthetic working day of batch jobs and a synthetic grid with a solar valley and " +
	"an evening peak; " +
	"replace it with --workload, --grid and --zone"

//go:embed demo
var files embed.FS

// WriteDemo writes the scenario of the demo and its input to dir and returns the path of the scenario file.
func WriteDemo(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("writing the bundled scenario: %w", err)
	}
	names, err := fs.Glob(files, "demo/*")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), content, 0o644); err != nil {
			return "", fmt.Errorf("writing the bundled scenario: %w", err)
		}
	}
	return filepath.Join(dir, "scenario.yaml"), nil
}
