package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/reference"
)

var (
	// separators matches the parts of an output that depend on the run and separators of columns and sentences.
	separators = regexp.MustCompile(`\S*[0-9…/]\S*|[^\pL +'-]+| {2,}|\bUTC\b`)
	wording    = regexp.MustCompile(`[a-z]{3}`)
)

// composed contains texts that the code composes, and texts of kubectl.
var composed = []string{
	"GridZone default", "from typical", "forecast by typical-day", "would be held until", "pod ready", "min earlier",
	"condition met",
}

// TestTranscripts verifies that the words of quoted outputs in the tutorials are texts of the code, of golden files, of
// the CRDs, or of the commands and files of the tutorial. It detects quotations that were not updated after a change of
// a text, unless the old words are also a part of another text.
func TestTranscripts(t *testing.T) {
	var b strings.Builder
	reference.ReadCode(t).All(func(text string) { b.WriteString(text + "\n") })
	for _, pattern := range []string{
		"internal/cli/testdata/golden/*", "internal/cli/testdata/*.txt", "charts/kubenergy/crds/*", "examples/*",
		"scenarios/demo/*", "scenarios/gaia/sample.yaml",
	} {
		names, err := filepath.Glob(filepath.Join(kit.Root, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("no files match %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(text)
		}
	}
	texts := strings.Join(strings.Fields(b.String()), " ")
	for name, p := range pages(t) {
		if filepath.Dir(name) != "docs/tutorials" {
			continue
		}
		known := texts
		for _, block := range p.blocks {
			if block.language == "sh" {
				known += " " + block.text
			}
		}
		for _, block := range p.blocks {
			for i, line := range strings.Split(block.text, "\n") {
				for _, words := range separators.Split(line, -1) {
					words = strings.TrimSpace(words)
					if block.language == "text" && wording.MatchString(words) && !strings.Contains(known, words) &&
						!slices.Contains(composed, words) {
						t.Errorf("%s:%d: %q is not a text of the programs", name, block.line+i+1, words)
					}
				}
			}
		}
	}
}
