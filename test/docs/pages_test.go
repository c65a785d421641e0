// Package docs checks the documentation for consistency with the code and with itself. Links must be valid, every
// page must be reachable, shell blocks must be tested or marked, and reference pages must match the code. The
// package does not import k8s.io/kubernetes.
package docs

import (
	"flag"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/kubenergy/kubenergy/test/kit"
)

var rewrite = flag.Bool("rewrite", false, "regenerate the reference pages and docs/links.txt")

// A page is a Markdown file.
type page struct {
	path    string // slash-separated, relative to the root
	size    int
	anchors map[string]bool // anchors of the headings
	links   []string        // links outside of code
	blocks  []block
}

// A block is a fenced code block.
type block struct {
	line     int
	section  string // preceding heading
	language string
	info     string // text after the language
	text     string
}

var (
	fence    = regexp.MustCompile("^( *)```(\\S*) *(.*)$")
	marks    = regexp.MustCompile(`^<!-- sh (\S.*) -->$`)
	inline   = regexp.MustCompile("`[^`]*`")
	markdown = regexp.MustCompile(`\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)(?: "[^"]*")?\)`)
	html     = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	bare     = regexp.MustCompile(`https?://[^\s<>()"'\]]+`)
)

// pages reads all Markdown files of the repository and returns them by path.
func pages(t *testing.T) map[string]*page {
	t.Helper()
	all := map[string]*page{}
	files(t, ".md", func(name, text string) { all[name] = readPage(name, text) })
	return all
}

// files calls found with each file of the repository that has the given suffix.
func files(t *testing.T, suffix string, found func(name, text string)) {
	t.Helper()
	none := []string{"bin", "out", "testdata"}
	err := filepath.WalkDir(kit.Root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != kit.Root &&
			(strings.HasPrefix(entry.Name(), ".") || slices.Contains(none, entry.Name())):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, suffix):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		name, err = filepath.Rel(kit.Root, name)
		found(filepath.ToSlash(name), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readPage(name, text string) *page {
	p := &page{path: name, size: len(text), anchors: map[string]bool{}}
	section, mark := "", ""
	var open *block
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open != nil && m != nil && m[2] == "":
			p.blocks, open = append(p.blocks, *open), nil
		case open != nil:
			open.text += line + "\n"
		case m != nil:
			open = &block{line: i + 1, section: section, language: m[2], info: m[3]}
			if open.language == "sh" && open.info == "" {
				open.info = mark
			}
		default:
			if level, heading, ok := strings.Cut(line, " "); ok && level != "" && strings.Trim(level, "#") == "" {
				section = line
				p.addAnchor(slug(heading))
			}
			if m := marks.FindStringSubmatch(line); m != nil {
				mark = m[1]
			}
			p.addLinks(inline.ReplaceAllString(line, ""))
		}
	}
	return p
}

func (p *page) addAnchor(name string) {
	for n, unique := 1, name; ; n++ {
		if !p.anchors[unique] {
			p.anchors[unique] = true
			return
		}
		unique = name + "-" + strconv.Itoa(n)
	}
}

func (p *page) addLinks(line string) {
	for _, pattern := range []*regexp.Regexp{markdown, html, bare} {
		line = pattern.ReplaceAllStringFunc(line, func(found string) string {
			m := pattern.FindStringSubmatch(found)
			p.links = append(p.links, strings.TrimRight(m[len(m)-1], ".,;:"))
			return ""
		})
	}
}

// slug returns the anchor that GitHub generates for a heading.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// target returns the file, relative to the root, and the anchor that a link inside the repository points to.
func (p *page) target(link string) (file, anchor string) {
	file, anchor, _ = strings.Cut(link, "#")
	if file == "" {
		return p.path, anchor
	}
	return path.Join(path.Dir(p.path), file), anchor
}

func outside(link string) bool {
	return strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:")
}

// broken returns the reason why a link inside the repository is broken, or "" if it is valid.
func (p *page) broken(link string, all map[string]*page) string {
	file, anchor := p.target(link)
	if _, err := os.Stat(filepath.Join(kit.Root, filepath.FromSlash(file))); err != nil {
		return "points to " + file + ", which does not exist"
	}
	if to := all[file]; anchor != "" && (to == nil || !to.anchors[anchor]) {
		return "points to a heading that does not exist in " + file
	}
	return ""
}

// TestLinks verifies that links inside the repository point to existing files and headings. External links are
// listed in docs/links.txt so that they can be checked separately.
func TestLinks(t *testing.T) {
	all := pages(t)
	outer := map[string]bool{}
	for _, p := range all {
		for _, link := range p.links {
			if outside(link) {
				outer[link] = true
			} else if wrong := p.broken(link, all); wrong != "" {
				t.Errorf("%s: link %s %s", p.path, link, wrong)
			}
		}
	}
	kit.Golden(t, filepath.Join(kit.Root, "docs/links.txt"),
		[]byte(strings.Join(slices.Sorted(maps.Keys(outer)), "\n")+"\n"), *rewrite)
}

// TestPagesAreReachable follows links from docs/README.md to every page in docs. A link to a directory reaches all
// of its files.
func TestPagesAreReachable(t *testing.T) {
	const start = "docs/README.md"
	all := pages(t)
	if all[start] == nil {
		t.Fatal(start, "does not exist")
	}
	for _, name := range unreachable(all, start) {
		t.Errorf("page is not reachable from %s: %s", start, name)
	}
}

func unreachable(all map[string]*page, start string) (names []string) {
	reached := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if reached[name] {
			return
		}
		reached[name] = true
		if p := all[name]; p != nil {
			for _, link := range p.links {
				if file, _ := p.target(link); !outside(link) {
					visit(file)
				}
			}
			return
		}
		for other := range all {
			if path.Dir(other) == name {
				visit(other)
			}
		}
	}
	visit(start)
	for name := range all {
		if strings.HasPrefix(name, "docs/") && !reached[name] {
			names = append(names, name)
		}
	}
	return names
}

// TestNoPlaceIsLeft searches for placeholders such as @@output@@ that have not been replaced.
func TestNoPlaceIsLeft(t *testing.T) {
	files(t, ".md", func(name, text string) {
		if before, _, found := strings.Cut(text, "@@"); found {
			t.Errorf("%s:%d: unreplaced placeholder @@", name, strings.Count(before, "\n")+1)
		}
	})
}

// TestTablesLinkOnce searches for duplicate links in the tables of index pages.
func TestTablesLinkOnce(t *testing.T) {
	for _, name := range []string{"docs/README.md", "docs/measurements/README.md"} {
		text, err := os.ReadFile(filepath.Join(kit.Root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range twice(string(text)) {
			t.Errorf("%s: a table contains the link %s twice", name, link)
		}
	}
}

// twice returns the links that occur more than once in a table of a page.
func twice(text string) (links []string) {
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			clear(seen)
			continue
		}
		for _, link := range readPage("", line).links {
			if seen[link] {
				links = append(links, link)
			}
			seen[link] = true
		}
	}
	return links
}

// TestREADMEIsShort limits the size of the README.
func TestREADMEIsShort(t *testing.T) {
	const most = 8 << 10
	if size := pages(t)["README.md"].size; size > most {
		t.Errorf("README.md has %d bytes, want at most %d; move reference and explanation to docs/", size, most)
	}
}

// TestReading verifies that pages are parsed like on GitHub and that broken links are detected.
func TestReading(t *testing.T) {
	p := readPage("docs/a.md", "# A *b*: `c-d`, e\n\n## A\n## A\n[x](../README.md#install) `[no](no.md)` "+
		"<https://a.org/b>, [y](https://en.org/C_(d)).\n\n```sh notest=\"root\"\n[no](no.md)\n# no\n```\n"+
		"<img src=\"i.svg\"> [to](e.md \"title\")\n<!-- sh test=TestX -->\n```sh\nls\n```\n")
	if got := slices.Sorted(maps.Keys(p.anchors)); !slices.Equal(got, []string{"a", "a-1", "a-b-c-d-e"}) {
		t.Errorf("unexpected anchors: %q", got)
	}
	want := []string{"../README.md#install", "https://en.org/C_(d)", "https://a.org/b", "e.md", "i.svg"}
	if !slices.Equal(p.links, want) {
		t.Errorf("unexpected links: %q", p.links)
	}
	b := p.blocks[0]
	if b.line != 7 || b.section != "## A" || b.language != "sh" || b.info != `notest="root"` {
		t.Errorf("unexpected block: %+v", b)
	}
	if p.blocks[1].info != "test=TestX" {
		t.Errorf("unexpected mark of the second block: %q", p.blocks[1].info)
	}
	if got := twice("[x](a)\n| [x](a) |\n| [x](b) [y](a) |\n\n| [x](b) |\n"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("unexpected duplicate links in tables: %q", got)
	}
	all := map[string]*page{"docs/README.md": p}
	p.path = "docs/README.md"
	if p.broken("none.md", all) == "" || p.broken("#none", all) == "" || p.broken("#a-1", all) != "" {
		t.Error("broken() does not distinguish broken and valid links")
	}
	all["docs/b/c.md"] = &page{path: "docs/b/c.md"}
	if got := unreachable(all, "docs/README.md"); !slices.Equal(got, []string{"docs/b/c.md"}) {
		t.Errorf("unexpected unreachable pages: %q", got)
	}
	p.links = append(p.links, "b")
	if got := unreachable(all, "docs/README.md"); len(got) > 0 {
		t.Errorf("unexpected unreachable pages with a link to the directory: %q", got)
	}
}
