package report

import (
	"io"
	"strings"
)

// Manifest describes the inputs of a comparison, so that others can reproduce it.
type Manifest struct {
	APIVersion  string   `json:"apiVersion"`
	Kind        string   `json:"kind"`
	Program     string   `json:"program"` // program version
	Go          string   `json:"go"`
	Platform    string   `json:"platform"`
	CommandLine []string `json:"commandLine"`
	// hash of the names and keys of all trials, and of the aggregation options
	Comparison string `json:"comparisonSHA256"`
	// by the path in the comparison file or its scenario
	Inputs map[string]string `json:"inputsSHA256"`
	Seed   uint64            `json:"seed"`  // seed of the resamples
	Seeds  []uint64          `json:"seeds"` // seeds of the trials
	Split  Split             `json:"parameterSplit"`
}

// Split lists the starts with quoted figures, and the starts for tuning parameters, by index from 0.
type Split struct {
	Quoted string `json:"quoted"`
	Starts []int  `json:"quotedStarts"`
	Others []int  `json:"otherStarts"`
}

// WriteSweepDir writes the comparison, its manifest, an HTML page, and every figure as SVG and PNG into dir. It
// returns the paths of the files.
func WriteSweepDir(dir string, s *Sweep, m *Manifest) (paths []string, err error) {
	p := &page{
		Title: s.headline(), Notes: s.allNotes(), Command: strings.Join(m.CommandLine, " "), Program: m.Program,
	}
	return p.write(dir, s.figures(), s.tables(), map[string]func(io.Writer) error{
		"comparison.json": func(w io.Writer) error { return WriteJSON(w, s) },
		"comparison.csv":  s.Sheet().CSV,
		"manifest.json":   func(w io.Writer) error { return WriteJSON(w, m) },
	})
}
