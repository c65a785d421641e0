package docs

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// widestProse is the maximum number of columns of prose, which equals that of code.
const widestProse = 120

var (
	written = regexp.MustCompile(`^<!-- (The reference is written by|figures:)`) // start of a generated part
	end     = regexp.MustCompile(`^<!-- (End of the reference|end of figures) -->`)
	aLink   = regexp.MustCompile(`\[[^\]]*\]\([^)]*\)`)
	marker  = regexp.MustCompile(`^\s*(?:[*+-]|\d+[.)])\s`)
)

// TestProseIsNarrow limits handwritten prose to 120 columns. Tables, code, headings, comments and lines that
// consist of a single link or word are excluded.
func TestProseIsNarrow(t *testing.T) {
	files(t, ".md", func(name, text string) {
		for _, line := range tooWide(text) {
			t.Errorf("%s:%d: line has more than %d columns", name, line, widestProse)
		}
	})
}

// tooWide returns the numbers of the lines of prose that are too wide and could be wrapped.
func tooWide(text string) (wide []int) {
	fenced, byTest, above := false, false, ""
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		indented := strings.HasPrefix(line, "    ") && (above == "" || strings.HasPrefix(above, "    "))
		switch {
		case fence.MatchString(line):
			fenced = !fenced
		case written.MatchString(line):
			byTest = true
		case end.MatchString(line):
			byTest = false
		case fenced, byTest, indented, trimmed == "", strings.ContainsAny(trimmed[:1], "|#<"):
		case utf8.RuneCountInString(line) > widestProse && breaks(line):
			wide = append(wide, i+1)
		}
		above = line
	}
	return wide
}

// breaks reports whether a line contains more than one word, link or inline code.
func breaks(line string) bool {
	line = aLink.ReplaceAllString(inline.ReplaceAllString(marker.ReplaceAllString(line, ""), "code"), "link")
	return len(strings.Fields(line)) > 1
}

func TestTooWide(t *testing.T) {
	long := strings.Repeat("word ", 25)
	link := "[" + long + "](https://en.org)."
	for text, want := range map[string]int{
		long: 1, "* " + long: 1, "  " + long: 1, "a\n    " + long: 2, "1. x " + link: 1, "```sh\nls\n```\n" + long: 4,
		"| " + long: 0, "# " + long: 0, "```text\n" + long + "\n```": 0, "a\n\n    " + long: 0, "<!-- " + long: 0,
		"* " + link: 0, "`" + long + "`,": 0, "<!-- The reference is written by x -->\n" + long: 0,
		"<!-- figures: x -->\n" + long + "\n<!-- end of figures -->\n" + long: 4, strings.Repeat("é", 100) + " x": 0,
	} {
		got := append(tooWide(text), 0)[0]
		if got != want {
			t.Errorf("tooWide(%q) returned line %d, want %d", text, got, want)
		}
	}
}
