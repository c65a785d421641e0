package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestAnswers verifies that the questions of new users are answered within two clicks from the README. A row of the
// file contains a page, a regular expression that its text must match, or must not match after "!", and the question.
func TestAnswers(t *testing.T) {
	all := pages(t)
	clicks := map[string]bool{"README.md": true}
	for range 2 {
		for name := range maps.Clone(clicks) {
			if p := all[name]; p != nil {
				for _, link := range p.links {
					file, _ := p.target(link)
					clicks[file] = true
				}
			}
		}
	}
	rows, err := os.ReadFile("testdata/answers.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for row := range strings.Lines(string(rows)) {
		column := strings.Split(strings.TrimSpace(row), "\t")
		text, err := os.ReadFile(filepath.Join(kit.Root, column[0]))
		pattern, unwanted := strings.CutPrefix(column[1], "!")
		found := regexp.MustCompile(pattern).MatchString(strings.Join(strings.Fields(string(text)), " "))
		if err != nil || found == unwanted || !clicks[column[0]] {
			t.Errorf("%s: %s matches %q: %v; within two clicks: %v (error: %v)", column[2], column[0], pattern, found,
				clicks[column[0]], err)
		}
	}
}
