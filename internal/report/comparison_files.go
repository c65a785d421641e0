package report

import (
	"fmt"
	"io"
	"strings"
)

// Manifest says what a comparison was made of, so that others can make it again.
type Manifest struct {
	APIVersion  string   `json:"apiVersion"`
	Kind        string   `json:"kind"`
	Program     string   `json:"program"` // its version
	Go          string   `json:"go"`
	Platform    string   `json:"platform"`
	CommandLine []string `json:"commandLine"`
	// of all trials' names and keys, and of how they are summed up
	Comparison string `json:"comparisonSHA256"`
	// by the file's path, as the comparison or its scenario gives it
	Inputs map[string]string `json:"inputsSHA256"`
	Seed   uint64            `json:"seed"`  // of the resamples
	Seeds  []uint64          `json:"seeds"` // of the trials
	Split  Split             `json:"parameterSplit"`
}

// Split says on which starts parameters may be chosen, and on which ones figures are quoted, by their indices from 0.
type Split struct {
	Quoted string `json:"quoted"`
	Starts []int  `json:"quotedStarts"`
	Others []int  `json:"otherStarts"`
}

// WriteSweepDir writes the comparison, its manifest, a page that shows it, and every figure as SVG and PNG into dir,
// and returns the paths.
func WriteSweepDir(dir string, s *Sweep, m *Manifest) (paths []string, err error) {
	figures, err := s.figures()
	if err != nil {
		return nil, fmt.Errorf("drawing the comparison: %w", err)
	}
	p := &page{
		Title: s.headline(), Notes: s.allNotes(), Command: strings.Join(m.CommandLine, " "), Program: m.Program,
	}
	return p.write(dir, figures, s.tables(), map[string]func(io.Writer) error{
		"comparison.json": func(w io.Writer) error { return WriteJSON(w, s) },
		"comparison.csv":  s.Sheet().CSV,
		"manifest.json":   func(w io.Writer) error { return WriteJSON(w, m) },
	})
}
