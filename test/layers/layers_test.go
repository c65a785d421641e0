// Package layers enforces the architecture: the allowed imports of each package, the restrictions of the core and
// the maximum size of main packages. The rules are plain functions in rules_test.go, and this file applies them to
// the source tree.
//
// Every Go file is parsed regardless of its build tags, so the rules apply to all platforms. The go command is only
// used to determine the indirect dependencies of main packages.
package layers

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// maxMain is the maximum number of lines of a main package. Main packages should only wire other packages.
const maxMain = 120

// A source is a parsed Go file of this module.
type source struct {
	path     string // slash-separated, relative to the root or to internal/
	folder   string
	internal bool // the file is below internal/
	test     bool
	file     *ast.File
	set      *token.FileSet
	lines    int
}

// isModule reports whether a directory contains a separate module, such as the examples that make test unpacks to
// out/.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

// sources parses every Go file of the module outside of testdata and hidden directories.
func sources(t *testing.T) []source {
	t.Helper()
	var found []source
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if name != root && (base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") ||
				strings.HasPrefix(base, "_") || isModule(name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(base) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel, internal := strings.CutPrefix(filepath.ToSlash(rel), "internal/")
		found = append(found, source{
			path: rel, folder: path.Dir(rel), internal: internal, test: strings.HasSuffix(rel, "_test.go"),
			file: file, set: set, lines: set.File(file.FileStart).LineCount(),
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestImportsPointDown(t *testing.T) {
	for _, s := range sources(t) {
		for _, spec := range s.file.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			to = strings.Replace(to, module+"/internal/", module+"/", 1)
			if wrong := checkImport(s.folder, to, s.test || isTestKit(s.folder)); wrong != "" {
				t.Errorf("%s: %s", s.path, wrong)
			}
		}
	}
}

// TestCodeIsInternal verifies that other modules cannot import packages without stability guarantees.
func TestCodeIsInternal(t *testing.T) {
	for _, s := range sources(t) {
		if root, _, _ := strings.Cut(s.folder, "/"); s.internal == slices.Contains(public, root) {
			t.Errorf("%s: code must be below internal/, except for the directories %s",
				s.path, strings.Join(public, ", "))
		}
	}
}

func TestCoreIsPure(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || !isPure(s.folder) {
			continue
		}
		for _, wrong := range checkPure(s.set, s.file) {
			t.Error(wrong)
		}
	}
}

// TestListenersAreLimited verifies that listeners and servers are only created by functions that set limits and
// timeouts.
func TestListenersAreLimited(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		names := map[string]string{} // import path by local name, for relevant packages
		for _, spec := range s.file.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if listens[to] != nil && spec.Name != nil {
				names[spec.Name.Name] = to
			} else if listens[to] != nil {
				names[path.Base(to)] = to
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StarExpr:
				return false // the type *http.Server does not create a server
			case *ast.SelectorExpr:
				if name, ok := n.X.(*ast.Ident); ok {
					if wrong := checkListens(s.path, names[name.Name], n.Sel.Name); wrong != "" {
						t.Errorf("%s: %s", s.set.Position(n.Pos()), wrong)
					}
				}
			}
			return true
		})
	}
}

func TestFilesAreNamedForTheirSubject(t *testing.T) {
	for _, s := range sources(t) {
		if wrong := checkFileName(s.path); wrong != "" {
			t.Error(wrong)
		}
	}
}

func TestMainsOnlyWire(t *testing.T) {
	mains, lines := map[string]bool{}, map[string]int{}
	for _, s := range sources(t) {
		if !within(s.folder, "cmd") || s.test {
			continue
		}
		mains[s.folder] = mains[s.folder] || declaresMain(s.file)
		lines[s.folder] += s.lines
	}
	for folder, has := range mains {
		if lines[folder] > maxMain {
			t.Errorf("main package %s has %d lines, want at most %d; move code to the package of its subject",
				folder, lines[folder], maxMain)
		}
		if !has {
			t.Errorf("%s has no func main, but cmd must only contain binaries", folder)
		}
	}
}

// TestMainsLinkLittle uses the go command to check the dependencies of main packages on the current platform.
func TestMainsLinkLittle(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command")
	}
	// Reading go.mod invalidates cached test results when it changes. The Go files are read below.
	if _, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	sources(t)
	for _, b := range bans {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(b.main))); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+b.main)
		list.Dir = root
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatalf("listing the dependencies of %s: %v", b.main, err)
		}
		if wrong := checkLinked(b.main, strings.Fields(string(out))); wrong != "" {
			t.Error(wrong)
		}
	}
}

func declaresMain(file *ast.File) bool {
	return file.Name.Name == "main" && slices.ContainsFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Recv == nil && f.Name.Name == "main"
	})
}

// clock lists the functions of package time with results that depend on the current time.
var clock = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// checkPure returns all positions at which a file reads the clock, starts a goroutine or prints.
func checkPure(set *token.FileSet, file *ast.File) []string {
	names := map[string]string{} // import path by local name, for relevant packages
	for _, spec := range file.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil || to != "time" && to != "fmt" {
			continue
		}
		if spec.Name != nil {
			names[spec.Name.Name] = to
		} else {
			names[to] = to
		}
	}
	var wrong []string
	report := func(pos token.Pos, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s: %s", set.Position(pos), fmt.Sprintf(format, args...)))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n.Pos(), "the core must not start goroutines, use them in its drivers")
		case *ast.SelectorExpr:
			name, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			switch names[name.Name] {
			case "time":
				if slices.Contains(clock, n.Sel.Name) {
					report(n.Pos(), "time.%s in the core, use the time in Snapshot.Now", n.Sel.Name)
				}
			case "fmt":
				if strings.HasPrefix(n.Sel.Name, "Print") {
					report(n.Pos(), "fmt.%s in the core, return a value and print it in a driver", n.Sel.Name)
				}
			}
		}
		return true
	})
	if i := slices.IndexFunc(file.Imports, func(s *ast.ImportSpec) bool {
		return s.Name != nil && s.Name.Name == "." && (s.Path.Value == `"time"` || s.Path.Value == `"fmt"`)
	}); i >= 0 {
		report(file.Imports[i].Pos(), "dot import in the core hides the origin of names")
	}
	return wrong
}

// maxFiles is the maximum number of files of a package, excluding tests, so that its listing remains easy to read.
const maxFiles = 30

func TestPackagesAreReadAtAGlance(t *testing.T) {
	files := map[string]int{}
	for _, s := range sources(t) {
		if !s.test {
			files[s.folder]++
		}
	}
	for folder, n := range files {
		if n > maxFiles {
			t.Errorf("package %s has %d files, want at most %d; split it by subject", folder, n, maxFiles)
		}
	}
}
