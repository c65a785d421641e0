package docs

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	decisionFile   = regexp.MustCompile(`^docs/decisions/(\d{4})-[a-z0-9-]+\.md$`)
	decisionTitle  = regexp.MustCompile(`^# (\d+)\. (\S+ \S+ \S.*[^.\s])$`)
	decisionStatus = regexp.MustCompile(`^Status: (?:accepted, \d{4}-\d\d-\d\d|rejected(?:, \d{4}-\d\d-\d\d)?|` +
		`superseded by \[(\d+)\]\((\d{4})-[a-z0-9-]+\.md\))$`)
)

// TestDecisions checks that every decision has a title with its number and a status line.
func TestDecisions(t *testing.T) {
	checked := 0
	files(t, ".md", func(name, text string) {
		if path.Dir(name) != "docs/decisions" || path.Base(name) == "README.md" {
			return
		}
		checked++
		if wrong := wrongDecision(name, text); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
	})
	if checked == 0 {
		t.Error("no decisions found in docs/decisions")
	}
}

// wrongDecision describes the first error in the name, title or status of a decision. It returns "" if there is none.
func wrongDecision(name, text string) string {
	file := decisionFile.FindStringSubmatch(name)
	if file == nil {
		return "want a file name of the form 0001-some-words.md"
	}
	lines := strings.SplitN(text+"\n\n\n", "\n", 4)
	title := decisionTitle.FindStringSubmatch(lines[0])
	if title == nil || !sameNumber(title[1], file[1]) {
		return "the first line is " + strconv.Quote(lines[0]) + ", want \"# N. \" and a sentence without a full stop, " +
			"where N is the number in the file name"
	}
	status := decisionStatus.FindStringSubmatch(lines[2])
	if lines[1] != "" || status == nil || !sameNumber(status[1], status[2]) {
		return "the third line is " + strconv.Quote(lines[2]) + ", want \"Status: accepted, YYYY-MM-DD\", " +
			"\"Status: superseded by [N](FILE)\" or \"Status: rejected\" after an empty line"
	}
	return ""
}

// sameNumber reports whether a number in a text equals the number in a file name, which has leading zeros.
func sameNumber(number, inFileName string) bool { return number == strings.TrimLeft(inFileName, "0") }

func TestWrongDecision(t *testing.T) {
	const name, title = "docs/decisions/0012-energy.md", "# 12. Agents interpolate energy\n\n"
	for _, test := range []struct{ name, text, want string }{
		{name, title + "Status: accepted, 2026-11-21\n", ""},
		{name, title + "Status: rejected", ""},
		{name, title + "Status: superseded by [48](0048-internal.md)\n\nText\n", ""},
		{name, "", "the first line"},
		{name, "# 12 Agents interpolate energy\n\nStatus: rejected\n", "the first line"},
		{name, "# 13. Agents interpolate energy\n\nStatus: rejected\n", "the first line"},
		{name, "# 12. Energy\n\nStatus: rejected\n", "the first line"},
		{name, "# 12. Agents interpolate energy.\n\nStatus: rejected\n", "the first line"},
		{name, title + "Text\n", "the third line"},
		{name, title + "Status: accepted\n", "the third line"},
		{name, title + "Status: superseded by [48](0047-benchmarks.md)\n", "the third line"},
		{name, "# 12. Agents interpolate energy\nStatus: rejected\n", "the third line"},
		{"docs/decisions/12-energy.md", title + "Status: rejected\n", "a file name"},
	} {
		got := wrongDecision(test.name, test.text)
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("wrongDecision(%q, %q) = %q, want %q", test.name, test.text, got, test.want)
		}
	}
}
