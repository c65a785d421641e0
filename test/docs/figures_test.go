package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFirstPaper runs the commands of the tutorial that needs no cluster, and verifies that each quoted line without
// an ellipsis is a line of the output of the preceding commands.
func TestFirstPaper(t *testing.T) {
	p, dir := pages(t)["docs/tutorials/first-paper.md"], clone(t)
	if err := os.Mkdir(filepath.Join(dir, "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	printed, quoted := map[string]bool{}, 0
	for _, b := range p.blocks {
		switch {
		case b.language == "sh" && b.info == "test=TestTutorials" && !strings.Contains(b.text, "go build"):
			output, err := run(t, dir, b.text)
			if err != nil {
				t.Fatalf("%s:%d: %v\n%s", p.path, b.line, err, output)
			}
			printed = map[string]bool{}
			for line := range strings.Lines(string(output)) {
				printed[strings.Join(strings.Fields(line), " ")] = true
			}
		case b.language == "text":
			for line := range strings.Lines(b.text) {
				line = strings.Join(strings.Fields(line), " ")
				if quoted++; line != "" && !strings.Contains(line, "…") && !printed[line] {
					t.Errorf("%s:%d: the commands do not print %q", p.path, b.line, line)
				}
			}
		}
	}
	if quoted < 20 {
		t.Errorf("only %d quoted lines were found", quoted)
	}
}
