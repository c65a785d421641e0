package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// variable returns the value of a variable of the Makefile, in which $ is not escaped.
func variable(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^` + name + `\s*:= (.+)$`).FindStringSubmatch(string(text))
	if match == nil {
		t.Fatalf("the Makefile does not define %s", name)
	}
	return strings.ReplaceAll(match[1], "$$", "$")
}

// isSingle returns a function that reports whether make test runs all tests of an internal package without the race
// detector.
func isSingle(t *testing.T) func(s *source) bool {
	single := regexp.MustCompile(`^(` + variable(t, "single") + `)$`)
	return func(s *source) bool { return s.internal && single.MatchString(s.folder) }
}

// TestSinglePackagesAreSequential verifies that the packages do not use concurrency. In package forecast, make test
// uses the race detector for the concurrent code.
func TestSinglePackagesAreSequential(t *testing.T) {
	single, n := isSingle(t), 0
	for _, s := range sources(t) {
		if s.test || !single(&s) || s.folder == "forecast" {
			continue
		}
		n++
		for _, wrong := range checkSequential(s.set, s.file) {
			t.Error(wrong)
		}
	}
	if n == 0 {
		t.Error("no package matches the variable single of the Makefile")
	}
}

// checkSequential returns all positions at which a file uses concurrency.
func checkSequential(set *token.FileSet, file *ast.File) (wrong []string) {
	report := func(pos token.Pos, text string) {
		wrong = append(wrong, fmt.Sprintf("%s: %s; its tests run without the race detector, see single in the Makefile",
			set.Position(pos), text))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n.Pos(), "the package must not start goroutines")
		case *ast.ImportSpec:
			if n.Path.Value == `"sync"` {
				report(n.Pos(), "the package must not import package sync")
			}
		}
		return true
	})
	return wrong
}

func TestSequentialRuleCanFail(t *testing.T) {
	for text, want := range map[string]string{
		`func f() { go f() }`: "must not start goroutines",
		`import "sync"`:       "must not import package sync",
		`import "slices"`:     "",
	} {
		set, file := parse(t, text)
		got := strings.Join(checkSequential(set, file), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("checkSequential(%s) = %q, want %q", text, got, want)
		}
	}
}

func parse(t *testing.T, text string) (*token.FileSet, *ast.File) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "x_test.go", "package x\n"+text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return set, file
}

// TestMarkedNamesAreUnique verifies that no test has the name of a test with the comment //test:norace in another
// package, because make test selects the marked tests of all packages by their names.
func TestMarkedNamesAreUnique(t *testing.T) {
	single := isSingle(t)
	folders := strings.Fields(variable(t, "light_folders"))
	var files []source
	for _, s := range sources(t) {
		top, _, _ := strings.Cut(s.folder, "/")
		if s.test && !single(&s) && (s.internal || slices.Contains(folders, top)) {
			files = append(files, s)
		}
	}
	marked, wrong := checkMarks(files)
	if marked == 0 {
		t.Error("no test has the comment //test:norace")
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// checkMarks returns the number of names of marked tests and the tests that have such a name but no mark.
func checkMarks(files []source) (n int, wrong []string) {
	marked, unmarked := map[string]string{}, map[string][]string{}
	for _, s := range files {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			if f.Doc != nil && f.Doc.List[len(f.Doc.List)-1].Text == "//test:norace" {
				marked[f.Name.Name] = s.path
			} else {
				unmarked[f.Name.Name] = append(unmarked[f.Name.Name], s.path)
			}
		}
	}
	for name, path := range marked {
		for _, other := range unmarked[name] {
			wrong = append(wrong, fmt.Sprintf("%s: %s has the name of a test with the comment //test:norace in %s, so "+
				"it does not run with the race detector either: mark or rename it", other, name, path))
		}
	}
	return len(marked), wrong
}

func TestMarkRuleCanFail(t *testing.T) {
	_, marked := parse(t, "// TestA is slow.\n//\n//test:norace\nfunc TestA(t *testing.T) {}\nfunc TestB(t *testing.T) {}\n")
	_, other := parse(t, "//test:norace\n\nfunc TestB(t *testing.T) {}\nfunc TestA(t *testing.T) {}\n")
	n, wrong := checkMarks([]source{{path: "a_test.go", file: marked}, {path: "b_test.go", file: other}})
	if n != 1 || len(wrong) != 1 || !strings.HasPrefix(wrong[0], "b_test.go: TestA has the name") {
		t.Error(n, wrong)
	}
}

// TestApartIsGated verifies that every test in the packages that make test does not run requires an environment
// variable. Other tests belong into packages that make test runs.
func TestApartIsGated(t *testing.T) {
	apart := regexp.MustCompile(strings.ReplaceAll(variable(t, "apart"), "/test/", "^test/"))
	all := bodies{}
	for _, s := range sources(t) {
		if within(s.folder, "test") {
			all.add(s.folder, s.file)
		}
	}
	n := 0
	for f := range all {
		if !apart.MatchString(f.folder) || !strings.HasPrefix(f.name, "Test") || f.name == "TestMain" {
			continue
		}
		if n++; !all.isGated(f, map[function]bool{}) {
			t.Errorf("%s: %s does not require KUBENERGY_LONG, KUBENERGY_REAL or KUBENERGY_BENCH, but make test does not "+
				"run this package, see apart in the Makefile", f.folder, f.name)
		}
	}
	if n == 0 {
		t.Error("no test matches the variable apart of the Makefile")
	}
}

// A function is a function of the module without receiver.
type function struct{ folder, name string }

// A body contains the strings in a function and the functions that it uses.
type body struct {
	texts []string
	uses  []function
}

type bodies map[function]body

// add adds the functions of a file.
func (all bodies) add(folder string, file *ast.File) {
	folders := map[string]string{} // by local name of the import
	for _, spec := range file.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		own, isOwn := strings.CutPrefix(to, module+"/")
		if err != nil || !isOwn {
			continue
		}
		name := own[strings.LastIndexByte(own, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		folders[name] = own
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil {
			continue
		}
		var b body
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				b.texts = append(b.texts, n.Value)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && folders[x.Name] != "" {
					b.uses = append(b.uses, function{folders[x.Name], n.Sel.Name})
				}
			case *ast.Ident:
				b.uses = append(b.uses, function{folder, n.Name})
			}
			return true
		})
		all[function{folder, f.Name.Name}] = b
	}
}

// gate matches the literal of an environment variable that enables long tests.
var gate = regexp.MustCompile(`^"KUBENERGY_(LONG|REAL|BENCH)"$`)

// isGated reports whether a function uses the name of an environment variable that enables long tests, directly or
// in a function that it uses.
func (all bodies) isGated(f function, seen map[function]bool) bool {
	if seen[f] {
		return false
	}
	seen[f] = true
	return slices.ContainsFunc(all[f].texts, gate.MatchString) ||
		slices.ContainsFunc(all[f].uses, func(used function) bool { return all.isGated(used, seen) })
}

func TestGateRuleCanFail(t *testing.T) {
	all := bodies{}
	_, kit := parse(t, `import "os"; func Require() { os.Getenv("KUBENERGY_`+`REAL") }`)
	_, tests := parse(t, `import g "`+module+`/test/kit/guest"
func TestDirect() { _ = "KUBENERGY_`+`LONG" }
func TestNear() { helper() }
func TestFar() { g.Require() }
func TestOpen() { open() }
func open() { TestOpen(); g.Other() }
func helper() { TestDirect() }`)
	all.add("test/kit/guest", kit)
	all.add("test/vm", tests)
	for name, want := range map[string]bool{"TestDirect": true, "TestNear": true, "TestFar": true, "TestOpen": false} {
		if got := all.isGated(function{"test/vm", name}, map[function]bool{}); got != want {
			t.Errorf("isGated(%s) = %v, want %v", name, got, want)
		}
	}
}
