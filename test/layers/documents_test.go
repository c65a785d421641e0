package layers

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// quoted matches inline code that looks like a path in this repository.
var quoted = regexp.MustCompile("`([a-z][a-z0-9]*(?:/[A-Za-z0-9_.-]+)+|[a-z0-9]+\\.go)`")

// TestArchitectureNamesWhatExists verifies that all paths and make targets in ARCHITECTURE.md exist.
func TestArchitectureNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	folder := "" // directory of the previous path on the line, to which file names are relative
	for line := range strings.Lines(string(text)) {
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			name := m[1]
			if !strings.Contains(name, "/") {
				name = path.Join(folder, name)
			}
			info, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
			if err != nil {
				t.Errorf("path %s does not exist: %s", name, strings.TrimSpace(line))
				continue
			}
			if folder = path.Dir(name); info.IsDir() {
				folder = name
			}
		}
		for _, m := range regexp.MustCompile("`make ([a-z-]+)").FindAllStringSubmatch(line, -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("make target %s does not exist", m[1])
			}
		}
	}
}

// TestSharedDataIsFound checks relative paths to recorded data, because tests are skipped if the data is not found.
func TestSharedDataIsFound(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			up, _, found := strings.Cut(text, "shared/data")
			if err != nil || !found || up == "" || strings.Trim(up, "./") != "" {
				return true
			}
			depth := strings.Count(s.folder, "/") + 1
			if s.internal {
				depth++
			}
			if within(s.folder, "hack") { // go generate runs them in internal/hardware
				depth = 2
			}
			if up != strings.Repeat("../", depth+1) {
				t.Errorf("%s: path %s does not point to the directory next to the repository", s.path, text)
			}
			return true
		})
	}
}
