package docs

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
)

// dialect matches words and phrases that the comments, messages and documents of Kubernetes, Kueue and raft do not use
// in this sense. CONTRIBUTING.md describes the style to use instead.
var dialect = regexp.MustCompile(`(?i)\b(told|tells?|telling|says?|saying|said|nobody|somebody|whoever|whom|whose|` +
	`of which|for which|what (?:is|are|was|were|it|its|they|has|have|a|an|no|one)|` +
	`(?:of|by|with|for|from|and|is|on|to) what|who (?:is|has)|knows? of|takes? notice|hears?|believe[sd]?|so many|` +
	`no more than what|those that|such that are|the very|anew|beside|goes? on|let go|` +
	`lets go|put off|is asked|are asked|nothing (?:is|of)|less than nothing|stands? (?:for|in|beside))\b`)

// phrase matches a string literal that is a text and not a key: at least four words.
var phrase = regexp.MustCompile(`\S+(?:\s+\S+){3,}`)

// TestEnglish fails on dialect in comments and string literals of Go files, tests included, and in documents. Lines that
// need such a word, for example quotations of other programs, are listed in testdata/english.txt.
func TestEnglish(t *testing.T) {
	allowed := readExceptions(t)
	used := map[string]bool{}
	check := func(name string, line int, text string) {
		found := dialect.FindString(text)
		if found == "" {
			return
		}
		for _, exception := range allowed[name] {
			if strings.Contains(text, exception) {
				used[name+": "+exception] = true
				return
			}
		}
		t.Errorf("%s:%d: %q in %s", name, line, found, strings.TrimSpace(text))
	}
	files(t, ".go", func(name, text string) {
		if name == "test/docs/english_test.go" || strings.Contains(name, "zz_generated") {
			return
		}
		eachText(text, func(line int, text string) { check(name, line, text) })
	})
	files(t, ".md", func(name, text string) {
		fenced := false
		for i, line := range strings.Split(text, "\n") {
			if fence.MatchString(line) {
				fenced = !fenced
			} else if !fenced {
				check(name, i+1, aLink.ReplaceAllString(line, ""))
			}
		}
	})
	for name, exceptions := range allowed {
		for _, exception := range exceptions {
			if !used[name+": "+exception] {
				t.Errorf("testdata/english.txt: %s: %s matches no text", name, exception)
			}
		}
	}
}

// eachText calls found with each line of a comment and with each string literal of at least four words.
func eachText(source string, found func(line int, text string)) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, []byte(source), nil, scanner.ScanComments)
	for {
		pos, kind, text := s.Scan()
		first := file.Line(pos)
		switch {
		case kind == token.EOF:
			return
		case kind == token.COMMENT && !strings.HasPrefix(text, "//go:"):
			for i, line := range strings.Split(text, "\n") {
				found(first+i, line)
			}
		case kind == token.STRING && phrase.MatchString(text):
			found(first, text)
		}
	}
}

// readExceptions returns the texts of testdata/english.txt by file. A line is "FILE: TEXT"; # starts a comment.
func readExceptions(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "english.txt"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, exception, ok := strings.Cut(line, ": ")
		if _, err := os.Stat(filepath.Join(kit.Root, name)); !ok || err != nil {
			t.Fatalf("testdata/english.txt: %q: want FILE: TEXT", line)
		}
		all[name] = append(all[name], exception)
	}
	return all
}

func TestEachText(t *testing.T) {
	source := "package x // one\n\n/* two\nthree */\n//go:generate none\nvar s, k = \"a text of words\", \"a key\"\n"
	var got []string
	eachText(source, func(_ int, text string) { got = append(got, text) })
	if want := []string{"// one", "/* two", "three */", `"a text of words"`}; !slices.Equal(got, want) {
		t.Errorf("eachText() = %q, want %q", got, want)
	}
}
